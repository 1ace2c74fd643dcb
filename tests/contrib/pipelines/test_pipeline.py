"""A pipeline is the best of several systems on dev, by values worked out by hand; re-ranked runs are only cut."""

import csv
import json
import math

import numpy as np
import pytest
from pytest import approx
from trec import iter_trec

from tandem.contrib.pipelines import choose as pipeline
from tandem.data.collection import Collection
from tandem.data.columns import DatasetNames
from tandem.data.runs import get_scored_depth
from tandem.errors import UserError
from tandem.retrieval import rerank
from tandem.store.artifact import open_artifact

SECOND, THIRD = 1 / math.log2(3), 1 / math.log2(4)  # nDCG@10 of a relevant passage there


@pytest.fixture
def write(write_ranked, dataset, tmp_path):
    """`write(kind, system, split, lists, run=…, **params)`: a run artifact of (query, documents, scores)."""

    def make(kind, system, split, lists, run=None, keep_absent=False, **params):
        inputs = {"dataset": dataset, **({"run": run} if run else {})}
        own = {"depth": 20, **({} if run else {"split": split}), **params}
        return write_ranked(
            kind, tmp_path / kind / f"{system}.{split}-0123456789", own, inputs, lists, keep_absent
        )

    return make


@pytest.fixture
def lists(dataset):
    """`lists(split, order)`: for each query its subject's passages 1, 2, 3 in an order, best first."""

    def make(split, order):
        subjects = (query.removeprefix(f"{split}-") for query in Collection(dataset).queries(split))
        scores = np.array([3, 2, 1], np.float32)
        return [
            (f"{split}-{subject}", [f"{subject}-{part}" for part in order], scores)
            for subject in subjects
        ]

    return make


@pytest.fixture
def choose(make_job, dataset, tmp_path):
    """`choose(depths, measure, **runs)`: the choice on dev; roles are `run_0`, `first_1`, …"""

    def make(depths, measure="nDCG@10", **runs):
        inputs = {"dataset": dataset, **{role.replace("_", "."): run for role, run in runs.items()}}
        params = {"split": "dev", "measure": measure, "depth": 20, "depths": depths}
        job = make_job(
            "choose_pipeline", tmp_path / "choose_pipeline" / "best.dev-0123456789", params, inputs
        )
        pipeline.run_choice(job)
        return open_artifact(job.out)

    return make


@pytest.fixture
def take(make_job, dataset, tmp_path):
    """`take(split, chosen, **runs)`: the chosen system's run."""

    def make(split, chosen, **runs):
        inputs = {
            "dataset": dataset,
            "chosen": chosen,
            **{role.replace("_", "."): run for role, run in runs.items()},
        }
        job = make_job(
            "pipeline", tmp_path / "pipeline" / f"best.{split}-0123456789", {"split": split}, inputs
        )
        pipeline.run(job)
        return open_artifact(job.out)

    return make


def test_a_depth_is_chosen_by_hand_and_its_cut_is_taken_on_test(write, lists, choose, take):
    # Relevant on dev: passage 1. The first stage has it second; re-ranking 2 puts it first, re-ranking 3 puts it third.
    first = write("bm25", "bm25", "dev", lists("dev", (2, 1, 3)))
    deep = write("rerank", "bm25+ce", "dev", lists("dev", (3, 1, 2)), first, depth=3)
    chosen = choose([2, 3], run_0=first, run_1=deep, first_1=first)
    with open(chosen.path("grid.csv"), newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["system", "re-ranked", "nDCG@10"]
    assert [(name, depth) for name, depth, _ in rows] == [
        ("bm25", ""),
        ("bm25+ce", "2"),
        ("bm25+ce", "3"),
    ]
    assert [float(value) for _, _, value in rows] == approx([SECOND, 1.0, SECOND])
    choice = json.loads(chosen.path("chosen.json").read_text())
    assert choice == {"run": 1, "depth": 2, "system": "bm25+ce", "value": 1.0}

    on_test = write("bm25", "bm25", "test", lists("test", (1, 2, 3)))
    deep_test = write("rerank", "bm25+ce", "test", lists("test", (3, 2, 1)), on_test, depth=3)
    best = take("test", chosen, run_0=on_test, run_1=deep_test, first_1=on_test)
    ranked = [[doc[-1] for doc in docs] for _, docs, _ in iter_trec(best.path("run.trec"))]
    # passages 1 and 2 by the cross-encoder's scores, 3 below them
    assert ranked == [["2", "1", "3"]] * 20
    assert best.manifest.facts["notes"] == [
        "bm25+ce, the first 2 re-ranked: chosen of 3 by nDCG@10 on dev (1.0000)"
    ]
    assert "warnings" not in best.manifest.facts
    assert get_scored_depth(best) == 2


def test_where_re_ranking_is_worse_or_no_better_the_first_stage_is_taken(
    write, lists, choose, take
):
    first = write("bm25", "bm25", "dev", lists("dev", (1, 2, 3)))
    worse = write("rerank", "bm25+ce", "dev", lists("dev", (2, 3, 1)), first, depth=3)
    same = write("rerank", "bm25+other", "dev", lists("dev", (1, 3, 2)), first, depth=3)
    runs = {"run_0": first, "run_1": worse, "first_1": first, "run_2": same, "first_2": first}
    chosen = choose([3], **runs)
    assert json.loads(chosen.path("chosen.json").read_text())["depth"] is None
    values = [
        float(line.split(",")[2]) for line in chosen.path("grid.csv").read_text().splitlines()[1:]
    ]
    assert values == approx([1.0, THIRD, 1.0])
    best = take("dev", chosen, **runs)
    before, after = (
        [docs for _, docs, _ in iter_trec(run.path("run.trec"))] for run in (first, best)
    )
    assert before == after
    assert get_scored_depth(best) is None
    assert best.manifest.facts["warnings"] == ["chosen on dev, the queries that are scored"]


def test_passages_that_the_corpus_lacks_keep_their_ranks_in_the_choice_and_in_the_run(
    write, lists, choose, take
):
    released = [
        (query, ["gone", *docs], [4.0, *scores]) for query, docs, scores in lists("dev", (1, 2, 3))
    ]
    theirs = write("imported", "theirs", "dev", released, keep_absent=True)
    second = write("bm25", "bm25", "dev", lists("dev", (2, 1, 3)))
    chosen = choose([3], run_0=second, run_1=theirs)
    values = [
        float(line.split(",")[2]) for line in chosen.path("grid.csv").read_text().splitlines()[1:]
    ]
    assert values == approx([SECOND, SECOND])  # without the absent passage theirs would have 1
    on_test = [
        (f"test-{query.removeprefix('dev-')}", docs, scores) for query, docs, scores in released
    ]
    runs = {"run_0": write("imported", "theirs", "test", on_test, keep_absent=True)}
    best = take("test", choose([3], run_0=theirs), **runs)
    assert {docs[0] for _, docs, _ in iter_trec(best.path("run.trec"))} == {"gone"}


def test_what_re_ranking_brings_from_below_the_cutoff_counts(write, lists, choose):
    first = write("bm25", "bm25", "dev", lists("dev", (2, 3, 1)))
    deep = write("rerank", "bm25+ce", "dev", lists("dev", (1, 3, 2)), first, depth=3)
    chosen = choose([2, 3], "nDCG@1", run_0=first, run_1=deep, first_1=first)
    assert json.loads(chosen.path("chosen.json").read_text()) == {
        "run": 1,
        "depth": 3,
        "system": "bm25+ce",
        "value": 1.0,
    }
    assert [
        line.split(",")[2] for line in chosen.path("grid.csv").read_text().splitlines()[1:]
    ] == [
        "0.0",
        "0.0",
        "1.0",
    ]


def test_a_cut_run_has_the_order_of_re_ranking_to_that_depth(
    write, dataset, cross_model, make_tokens, make_job, tmp_path
):
    ids, random = Collection(dataset).doc_ids().to_pylist(), np.random.default_rng(5)
    drawn = [
        (query, [ids[at] for at in random.permutation(60)[:12]])
        for query in Collection(dataset).queries("dev")
    ]
    first = write(
        "bm25",
        "bm25",
        "dev",
        [(q, docs, random.integers(0, 5, 12).astype(np.float32)) for q, docs in drawn],
    )
    inputs = {"dataset": dataset, "run": first, "model": cross_model}
    inputs["tokens"] = make_tokens(tmp_path / "tokens" / "tiny-0123456789", dataset)
    runs = {}
    for depth in (4, 10):
        job = make_job(
            "rerank",
            tmp_path / "rerank" / f"{depth}.dev-0123456789",
            {"depth": depth, "precision": "fp32"},
            inputs,
        )
        rerank.run(job)
        runs[depth] = open_artifact(job.out)
    cut = (
        ranked
        for (ranked,) in pipeline.iterate_rankings(
            pipeline.SearchSystem(0, runs[10], first, (4,)), DatasetNames(dataset)
        )
    )
    for (query, docs, scores), (other, expected, values) in zip(
        cut, iter_trec(runs[4].path("run.trec")), strict=True
    ):
        assert query == other
        assert docs == expected
        assert scores == approx(values, abs=1e-6)


def test_what_does_not_belong_together_is_refused(write, lists, choose, take):
    first = write("bm25", "bm25", "dev", lists("dev", (1, 2, 3)))
    other = write("retrieve", "de", "dev", lists("dev", (2, 1, 3)))
    deep = write("rerank", "bm25+ce", "dev", lists("dev", (3, 1, 2)), first, depth=3)
    with pytest.raises(
        UserError, match=r"bm25\+ce.dev-0123456789: re-ranks .*bm25.dev.*, but first.0 is .*de.dev"
    ):
        choose([3], run_0=deep, first_0=other)
    with pytest.raises(UserError, match="re-ranks 3 passages, but depths has 5"):
        choose([5], run_0=deep, first_0=first)
    chosen = choose([3], run_0=first, run_1=deep, first_1=first)
    with pytest.raises(
        UserError,
        match=r"chose among dataset, first.1, run.0, run.1, but these are dataset, run.0;",
    ):
        take("dev", chosen, run_0=first)
