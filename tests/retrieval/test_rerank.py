"""Stage `rerank`: the order of direct scoring; only the top is scored; what does not fit is refused."""

import json
import math
import shutil

import numpy as np
import pytest
from messages import other_dataset
from trec import iter_trec

from tandem.config.settings import Execution
from tandem.data.collection import Collection
from tandem.data.rows import index_passages, index_queries
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval import rerank as module
from tandem.retrieval.rerank import run
from tandem.stages.retrieval import pair_scorer
from tandem.store.artifact import open_artifact
from tandem.store.job import run_shard

PARAMS = {"depth": 10, "precision": "fp32", "batch_tokens": 512}


@pytest.fixture
def tokens(make_tokens, dataset, tmp_path):
    return make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)


@pytest.fixture
def make_run(write_ranked, tmp_path):
    """`make_run(dataset, lists)`: a run artifact of depth 15."""

    def make(dataset, lists, name="run"):
        out = tmp_path / "tiny" / "bm25" / f"{name}-0123456789"
        return write_ranked("bm25", out, {"depth": 15}, {"dataset": dataset}, lists)

    return make


@pytest.fixture
def lists(dataset):
    """15 passages for each test query, fewer for one, by a random score."""
    rng = np.random.default_rng(3)
    ids = Collection(dataset).doc_ids().to_pylist()
    rankings = []
    for n, query in enumerate(Collection(dataset).queries("test")):
        count = 4 if n == 5 else 15
        docs = [ids[i] for i in rng.permutation(60)[:count]]
        rankings.append((query, docs, rng.integers(0, 9, count).astype(float)))  # with ties
    return rankings


@pytest.mark.parametrize("group", [1, 1 << 20])
def test_order_equals_direct_scoring(
    tmp_path, make_job, make_run, lists, dataset, cross_model, tokens, monkeypatch, group
):
    monkeypatch.setattr(module, "PAIRS_PER_LOOKUP", group)
    inputs = {
        "dataset": dataset,
        "run": make_run(dataset, lists),
        "model": cross_model,
        "tokens": tokens,
    }
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "ce-0123456789", PARAMS, inputs)
    run(job)
    collection, opened = Collection(dataset), Tokens.open(tokens)
    docs, queries = index_passages(collection), index_queries(collection)
    cross = CrossEncoder.load(cross_model.folder / "cross")
    accelerate(cross, Execution(), 512, "fp32", training=False)
    expected = []
    for query, candidates, scores in lists:
        top = [
            doc
            for _, doc in sorted(
                (-score, doc) for doc, score in zip(candidates, scores, strict=True)
            )[:10]
        ]
        query_texts = [opened.queries[int(queries.rows([query])[0])]] * len(top)
        logits = cross.score(
            query_texts, [opened.passages[i] for i in docs.rows(top)], opened.template, "fp32", 512
        )
        ranked = sorted((-float(score), doc) for doc, score in zip(top, logits, strict=True))
        rest = [
            doc
            for _, doc in sorted(
                (-score, doc) for doc, score in zip(candidates, scores, strict=True)
            )[10:]
        ]
        below = math.floor(min(0.0, *map(float, logits))) - 1
        ranked += [(float(n - below), doc) for n, doc in enumerate(rest)]
        expected += [
            f"{query} Q0 {doc} {n} {-score:.9g} ce-0123456789"
            for n, (score, doc) in enumerate(ranked, 1)
        ]
    assert (job.out / "run.trec").read_text().splitlines() == expected
    assert len(expected) == 19 * 15 + 4
    assert open_artifact(job.out).manifest.facts["scored"] == 19 * 10 + 4


def test_going_deeper_scores_only_what_is_new(
    tmp_path, make_job, make_run, lists, dataset, cross_model, tokens
):
    inputs = {
        "dataset": dataset,
        "run": make_run(dataset, lists),
        "model": cross_model,
        "tokens": tokens,
    }
    scored = []
    for depth in (5, 10, 10):
        job = make_job(
            "rerank",
            tmp_path / "tiny" / "rerank" / f"{len(scored)}",
            {**PARAMS, "depth": depth},
            inputs,
        )
        run(job)
        scored.append(open_artifact(job.out).manifest.facts["scored"])
        assert {len(docs) for _, docs, _ in iter_trec(job.out / "run.trec")} == {4, 15}
    assert scored == [19 * 5 + 4, 19 * 5, 0]


def test_a_re_ranked_run_is_re_ranked_more_deeply(
    tmp_path, make_job, make_run, lists, dataset, cross_model, tokens
):
    inputs = {
        "dataset": dataset,
        "run": make_run(dataset, lists),
        "model": cross_model,
        "tokens": tokens,
    }
    runs = []
    for depth in (5, 10):
        job = make_job(
            "rerank",
            tmp_path / "tiny/rerank" / f"r{depth}-0123456789",
            {**PARAMS, "depth": depth},
            inputs,
        )
        run(job)
        inputs["run"] = open_artifact(job.out)
        runs.append({query: set(docs[:10]) for query, docs, _ in iter_trec(job.out / "run.trec")})
    assert runs[0] == runs[1]
    assert inputs["run"].manifest.facts["scored"] == 19 * 5


def test_shards_change_no_byte(
    tmp_path, make_job, command, make_run, lists, dataset, cross_model, tokens
):
    """Three shards share the pairs out without overlap; the stage then scores none and writes what it wrote alone."""
    inputs = {
        "dataset": dataset,
        "run": make_run(dataset, lists),
        "model": cross_model,
        "tokens": tokens,
    }
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "ce-0123456789", PARAMS, inputs)
    run(job)
    alone = (job.out / "run.trec").read_bytes()
    pairs = tmp_path / "tiny" / "pairs"
    shutil.rmtree(job.out)
    shutil.rmtree(pairs)
    scored = []
    for shard in (2, 0, 1):
        execution = {"shard": shard, "shards": 3}
        name = f"shards/{shard}-of-3.json"
        run_shard(
            "rerank-shard", command(make_job("rerank", job.out, PARAMS, inputs, execution), name)
        )
        scored.append(json.loads((job.out / name).read_text())["scored"])
    assert sum(scored) == 19 * 10 + 4
    assert min(scored) > 40
    run(job)
    assert open_artifact(job.out).manifest.facts["scored"] == 0
    assert (job.out / "run.trec").read_bytes() == alone
    words = command(
        make_job("rerank", job.out, PARAMS, inputs, {"shard": 3, "shards": 3}), "shards/3-of-3.json"
    )
    with pytest.raises(UserError, match="--run.shard is 3; of 3 shards, 0 to 2 are allowed"):
        run_shard("rerank-shard", words)


def test_what_does_not_fit_is_refused(
    tmp_path, make_job, make_run, make_dataset, make_tokens, lists, dataset, cross_model, tokens
):
    good = make_run(dataset, lists)
    inputs = {"dataset": dataset, "run": good, "model": cross_model, "tokens": tokens}
    out = tmp_path / "tiny" / "rerank" / "x-0123456789"
    other = make_dataset(tmp_path / "dataset" / "other-0123456789", [("x", "", "an otter")])
    foreign = make_run(other, [("test-otter", ["x"], [1.0])], "foreign")
    with pytest.raises(
        UserError, match=other_dataset("run", "other-0123456789", "tiny-0000000001")
    ):
        run(make_job("rerank", out, PARAMS, {**inputs, "run": foreign}))
    strange = make_tokens(tmp_path / "other" / "tokens" / "x-0123456789", other)
    with pytest.raises(UserError, match=other_dataset("tokens", "other-0123456789")):
        run(make_job("rerank", out, PARAMS, {**inputs, "tokens": strange}))
    with pytest.raises(UserError, match="depth is 20, but .*run-0123456789 goes only 15 deep"):
        run(make_job("rerank", out, {**PARAMS, "depth": 20}, inputs))
    assert not list(out.glob("*"))


@pytest.fixture
def ensemble(dataset, make_run, lists, cross_model, joint_model, tokens):
    """The inputs of two cross-encoders that re-rank together."""
    inputs = {
        "dataset": dataset,
        "run": make_run(dataset, lists),
        "judge.0": cross_model,
        "judge.1": joint_model,
    }
    return inputs | {"judge_tokens.0": tokens, "judge_tokens.1": tokens}


def test_an_ensemble_reranks_by_the_mean_of_its_logits(
    tmp_path, make_job, dataset, cross_model, joint_model, tokens, ensemble
):
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "both-0123456789", PARAMS, ensemble)
    run(job)
    tops = []
    for number, model in enumerate((cross_model, joint_model)):
        inputs = {"dataset": dataset, "run": ensemble["run"], "model": model, "tokens": tokens}
        alone = make_job("rerank", tmp_path / "tiny" / "rerank" / f"{number}", PARAMS, inputs)
        run(alone)
        # the ensemble has asked both for every pair
        assert open_artifact(alone.out).manifest.facts["scored"] == 0
        top = {
            query: dict(zip(docs[:10], scores, strict=False))
            for query, docs, scores in iter_trec(alone.out / "run.trec")
        }
        tops.append(top)
    assert open_artifact(job.out).manifest.facts["scored"] == 2 * (19 * 10 + 4)
    for query, docs, scores in iter_trec(job.out / "run.trec"):
        means = {
            doc: np.float32((float(score) + float(tops[1][query][doc])) / 2)
            for doc, score in tops[0][query].items()
        }
        assert docs[: len(means)] == sorted(means, key=lambda doc, means=means: (-means[doc], doc))
        assert scores[: len(means)].tolist() == [means[doc] for doc in docs[: len(means)]]
        assert len(docs) == (15 if len(means) == 10 else 4)


def test_shards_of_an_ensemble_change_no_byte(tmp_path, make_job, command, ensemble):
    job = make_job("rerank", tmp_path / "tiny" / "rerank" / "both-0123456789", PARAMS, ensemble)
    run(job)
    alone = (job.out / "run.trec").read_bytes()
    shutil.rmtree(job.out)
    shutil.rmtree(tmp_path / "tiny" / "pairs")
    scored = []
    for shard in (1, 0):
        name = f"shards/{shard}-of-2.json"
        share = make_job("rerank", job.out, PARAMS, ensemble, {"shard": shard, "shards": 2})
        run_shard("rerank-shard", command(share, name))
        scored.append(json.loads((job.out / name).read_text())["scored"])
    assert sum(scored) == 2 * (19 * 10 + 4)
    run(job)
    assert open_artifact(job.out).manifest.facts["scored"] == 0
    assert (job.out / "run.trec").read_bytes() == alone


def test_a_registered_scorer_reads_texts(tmp_path, make_job, make_run, dataset):
    @pair_scorer("shared_words")
    def shared_words(query, passages, *, weight=1.0):
        return [
            weight * len(set(query.lower().split()) & set(text.lower().split()))
            for text in passages
        ]

    collection = Collection(dataset)
    query, text = next(iter(collection.queries("test").items()))
    docs = collection.doc_ids().to_pylist()[:6]
    ranked = make_run(dataset, [(query, docs, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])], "words")
    params = {"depth": 4, "scorer": "shared_words", "options": {"weight": 2.0}}
    job = make_job(
        "rerank",
        tmp_path / "tiny" / "rerank" / "words-0123456789",
        params,
        {"dataset": dataset, "run": ranked},
    )
    run(job)
    texts, words = collection.texts(docs), set(text.lower().split())
    shared = {doc: 2.0 * len(words & set(" ".join(texts[doc]).lower().split())) for doc in docs[:4]}
    best = sorted(shared, key=lambda doc: (-shared[doc], doc))
    written = [line.split() for line in (job.out / "run.trec").read_text().splitlines()]
    assert [fields[2] for fields in written] == [*best, *docs[4:]]
    scores = [*(shared[doc] for doc in best), -1.0, -2.0]
    assert [float(fields[4]) for fields in written] == pytest.approx(scores, abs=1e-6)
    pair_scorer._entries["shared_words"] = lambda query, passages, weight: [1.0]
    with pytest.raises(UserError, match="shared_words, .*must give a number for each of 4"):
        run(job)
    del pair_scorer._entries["shared_words"]
