"""Stage `rerank_windows`: every window scored by hand and aggregated by plain loops; shards; what does not fit."""

import json
import math
import shutil

import numpy as np
import pytest
from messages import other_dataset

from tandem.contrib.long_documents.rerank_windows import run
from tandem.data.collection import Collection
from tandem.data.dataset import run as cut
from tandem.data.runs import order_by_score
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval import rerank as module
from tandem.store.artifact import open_artifact
from tandem.store.job import run_shard

CUT = {"length": 6, "stride": 4, "unit": "words", "most": None, "titles": "repeat", "label": "all"}
PARAMS = {"depth": 7, "precision": "fp32", "batch_tokens": 512, "split": "test"}
METHODS = {
    "first": lambda scores: scores[0],
    "max": max,
    "sum": math.fsum,
    "kmax": lambda scores: math.fsum(sorted(scores)[-2:]) / min(2, len(scores)),
}


@pytest.fixture(scope="module")
def windows(dataset, make_job, tmp_path_factory):
    """The tiny collection's passages in windows of six words, a new one every four: one to four each."""
    out = tmp_path_factory.mktemp("windows") / "dataset" / "w-0123456789"
    cut(make_job("dataset", out, {"source": "windows", **CUT}, {"of": dataset}))
    return open_artifact(out)


@pytest.fixture
def ranked(dataset, write_ranked, tmp_path):
    """Ten documents for each test query by a random score, fewer for one."""
    rng = np.random.default_rng(3)
    ids = Collection(dataset).doc_ids().to_pylist()
    lists = []
    for n, query in enumerate(Collection(dataset).queries("test")):
        count = 4 if n == 5 else 10
        lists.append(
            (query, [ids[i] for i in rng.permutation(60)[:count]], np.arange(count, 0, -1))
        )
    out = tmp_path / "tiny" / "bm25" / "run-0123456789"
    return lists, write_ranked("bm25", out, {"depth": 10}, {"dataset": dataset}, lists)


@pytest.fixture
def inputs(ranked, dataset, windows, make_tokens, cross_model, tmp_path):
    tokens = make_tokens(tmp_path / "w" / "tokens" / "w-0123456789", windows)
    sources = {"dataset": dataset, "windows": windows, "run": ranked[1]}
    return sources | {"judge.0": cross_model, "judge_tokens.0": tokens}


@pytest.fixture
def logit(inputs, windows):
    """`logit(query, docs)`: for each document the logits of its windows, scored one query at a time."""
    collection, opened = Collection(windows), Tokens.open(inputs["judge_tokens.0"])
    cross = CrossEncoder.load(inputs["judge.0"].folder / "cross")
    rows: dict[str, list[int]] = {}
    for row, window in enumerate(collection.doc_ids().to_pylist()):
        rows.setdefault(window.rpartition("#")[0], []).append(row)
    query_rows = {
        query: row
        for row, query in enumerate(
            query for split in ("train", "dev", "test") for query in collection.queries(split)
        )
    }

    def logits_of(query, docs):
        at = [row for doc in docs for row in rows[doc]]
        texts = [opened.queries[query_rows[query]]] * len(at), [opened.passages[row] for row in at]
        scores = iter(cross.score(*texts, opened.template, "fp32", 512).tolist())
        return [[next(scores) for _ in rows[doc]] for doc in docs]

    return logits_of


def expected(ranked, logit, method, turn=lambda x: x):
    """Lines of the run, without their tag."""
    lines = []
    for query, docs, _ in ranked:
        scores = [METHODS[method]([turn(x) for x in windows]) for windows in logit(query, docs[:7])]
        below = math.floor(min(0.0, *map(np.float32, scores))) - 1
        scores += [below - n for n in range(len(docs) - 7)]
        lines += [(query, doc, score) for doc, score in order_by_score(docs, scores)]
    return lines


def written(job):
    lines = [line.split() for line in (job.out / "run.trec").read_text().splitlines()]
    return [(query, doc, float(score)) for query, _, doc, _, score, _ in lines]


@pytest.mark.parametrize("group", [1, 1 << 20])
@pytest.mark.parametrize("method", METHODS)
def test_the_aggregate_of_direct_scores(
    method, group, inputs, ranked, logit, make_job, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "PAIRS_PER_LOOKUP", group)
    params = PARAMS | {"method": method, "scores": "raw"} | ({"k": 2} if method == "kmax" else {})
    job = make_job(
        "rerank_windows", tmp_path / "tiny" / "rerank_windows" / "ce-0123456789", params, inputs
    )
    run(job)
    lines, hand = written(job), expected(ranked[0], logit, method)
    assert [line[:2] for line in lines] == [line[:2] for line in hand]
    np.testing.assert_allclose(
        [line[2] for line in lines], [line[2] for line in hand], rtol=1e-6, atol=1e-6
    )
    scored = open_artifact(job.out).manifest.facts["scored"]
    assert scored == 19 * 7 + 4 if method == "first" else scored > 19 * 7 + 4


def test_sums_of_probabilities(inputs, ranked, logit, make_job, tmp_path):
    params = PARAMS | {"method": "sum", "scores": "probability"}
    job = make_job(
        "rerank_windows", tmp_path / "tiny" / "rerank_windows" / "ce-0123456789", params, inputs
    )
    run(job)
    lines, hand = written(job), expected(ranked[0], logit, "sum", lambda x: 1 / (1 + math.exp(-x)))
    assert [line[:2] for line in lines] == [line[:2] for line in hand]
    np.testing.assert_allclose([line[2] for line in lines], [line[2] for line in hand], rtol=1e-6)


def test_methods_share_the_scores_and_judges_are_averaged(
    inputs, cross_model, joint_model, make_job, tmp_path
):
    def rerank(name, judges, method):
        sources = {
            role: artifact for role, artifact in inputs.items() if not role.startswith("judge")
        }
        for i, model in enumerate(judges):
            sources |= {f"judge.{i}": model, f"judge_tokens.{i}": inputs["judge_tokens.0"]}
        params = PARAMS | {"method": method, "scores": "raw"}
        job = make_job(
            "rerank_windows", tmp_path / "tiny" / "rerank_windows" / name, params, sources
        )
        run(job)
        return {line[:2]: line[2] for line in written(job)}, open_artifact(job.out).manifest.facts[
            "scored"
        ]

    first, scored = rerank("one", [cross_model], "sum")
    assert scored > 0
    assert rerank("max", [cross_model], "max")[1] == 0
    other, _ = rerank("other", [joint_model], "sum")
    both, again = rerank("both", [cross_model, joint_model], "sum")
    assert again == 0
    tops = [pair for pair in both if first[pair] > -20 and other[pair] > -20]
    whole = [pair for pair in tops if not first[pair].is_integer()]
    assert len(whole) > 100
    for pair in whole:
        assert both[pair] == pytest.approx((first[pair] + other[pair]) / 2, abs=1e-5)


def test_shards_change_no_byte(inputs, make_job, command, tmp_path):
    params = PARAMS | {"method": "max", "scores": "raw"}
    job = make_job(
        "rerank_windows", tmp_path / "tiny" / "rerank_windows" / "ce-0123456789", params, inputs
    )
    run(job)
    alone, total = (
        (job.out / "run.trec").read_bytes(),
        open_artifact(job.out).manifest.facts["scored"],
    )
    shutil.rmtree(job.out)
    shutil.rmtree(tmp_path / "w" / "pairs")
    scored = []
    for shard in (2, 0, 1):
        name = f"shards/{shard}-of-3.json"
        share = make_job("rerank_windows", job.out, params, inputs, {"shard": shard, "shards": 3})
        run_shard("rerank_windows-shard", command(share, name))
        scored.append(json.loads((job.out / name).read_text())["scored"])
    assert sum(scored) == total
    assert min(scored) > total / 5
    run(job)
    assert open_artifact(job.out).manifest.facts["scored"] == 0
    assert (job.out / "run.trec").read_bytes() == alone


def test_what_does_not_fit_is_refused(inputs, tokens, make_job, tmp_path):
    def job(params=None, **other):
        settings = PARAMS | {"method": "max", "scores": "raw"} | (params or {})
        return make_job(
            "rerank_windows", tmp_path / "tiny" / "no-0123456789", settings, inputs | other
        )

    with pytest.raises(
        UserError, match=other_dataset("judge_tokens.0", "tiny-0000000001", "w-01234")
    ):
        run(job(**{"judge_tokens.0": tokens}))
    with pytest.raises(UserError, match="depth is 20, but .*run-0123456789 goes only 10 deep"):
        run(job({"depth": 20}))
    with pytest.raises(
        UserError, match="holds windows of nothing; expected windows of tiny-0000000001"
    ):
        run(job(windows=inputs["dataset"]))
