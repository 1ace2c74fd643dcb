"""Pools of several runs, ranked by judges or by the runs themselves, on a collection where the answer is known."""

import csv
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.contrib.audits.false_negatives import fuse_ranks, run
from tandem.data.collection import EXCLUDED, Collection
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.store.artifact import open_artifact

PARAMS = {"split": "test", "depth": 2, "top": 2, "threshold": 0.5}
PASSAGES = [(f"p{i}", "A title" if i == 4 else "", f"passage number {i}") for i in range(1, 8)]
QUERIES = [
    ("q1", "first\nquery", "test"),
    ("q2", "=second", "test"),
    ("q3", "third", "test"),
    ("t1", "x", "train"),
]
QRELS = [
    ("q1", "p1", 1, "test"),
    ("q1", "p7", 2, "test"),
    ("q2", "p2", 0, "test"),
    ("q2", "gone", 1, "test"),
]


@pytest.fixture
def inputs(make_collection, make_run, tmp_path):
    data = make_collection(tmp_path / "d" / "mini-0123456789", PASSAGES, QUERIES, QRELS)
    first = {"q1": ["p1", "p2", "p3"], "q2": ["p2", "p4"]}
    second = {"q2": ["p4", "p5", "p6"], "q1": ["p3", "p1"]}
    runs = [
        make_run(tmp_path / "r" / f"{name}.test-0123456789", data, "test", ranked)
        for name, ranked in (("bm25", first), ("de", second))
    ]
    return {"dataset": data, "run.0": runs[0], "run.1": runs[1]}


def audit(make_job, out, inputs, **params):
    run(make_job("false_negatives", out, PARAMS | params, inputs))
    artifact = open_artifact(out, "false_negatives")
    with open(artifact.path("sheet.csv"), encoding="utf-8", newline="") as file:
        sheet = file.read()
    assert sheet.startswith("\ufeffquery_id,")
    rows = list(csv.DictReader(sheet.removeprefix("\ufeff").splitlines()))
    pool = pq.read_table(artifact.path("pool.parquet")).to_pylist()
    return artifact, pool, rows, json.loads(artifact.path("summary.json").read_text())


def test_fusion_by_hand():
    ranks = np.array([[1, 2, 0], [0, 1, 0]])
    assert fuse_ranks(ranks) == pytest.approx([1 / 61, 1 / 62 + 1 / 61, 0], abs=1e-7)


def test_without_a_judge_the_runs_rank(make_job, inputs, tmp_path):
    artifact, pool, sheet, summary = audit(make_job, tmp_path / "a-0123456789", inputs)
    first, second = 1 / 61, 1 / 62
    # q1: bm25 finds p1, p2 and de finds p3, p1; q2: bm25 finds p2, p4 and de finds p4, p5 (equal to p2's second rank)
    expected = [
        ("q1", "p1", 1, first + second, ["bm25.test", "de.test"], 1, False),
        ("q1", "p3", 2, first, ["de.test"], None, True),
        ("q1", "p2", 3, second, ["bm25.test"], None, True),
        ("q2", "p4", 1, first + second, ["bm25.test", "de.test"], None, True),
        ("q2", "p2", 2, first, ["bm25.test"], 0, False),
        ("q2", "p5", 3, second, ["de.test"], None, True),
    ]
    names = ("query_id", "doc_id", "rank", "score", "systems", "relevance", "asked")
    assert [tuple(row[n] for n in names if n != "score") for row in pool] == [
        e[:3] + e[4:] for e in expected
    ]
    assert [row["score"] for row in pool] == pytest.approx([e[3] for e in expected], abs=1e-7)
    assert [(row["query_id"], row["doc_id"], row["rank"], row["verdict"]) for row in sheet] == [
        ("q1", "p3", "2", ""),
        ("q1", "p2", "3", ""),
        ("q2", "p4", "1", ""),
        ("q2", "p5", "3", ""),
    ]
    assert sheet[0]["query"] == "first query"
    assert sheet[2]["query"] == "'=second"
    assert (sheet[2]["title"], sheet[2]["passage"]) == ("A title", "passage number 4")
    assert (
        summary["scored_by"]
        == "reciprocal rank fusion (k = 60)"
        == artifact.manifest.facts["scored_by"]
    )
    assert "above_threshold" not in summary
    assert summary["queries"] == 3
    assert summary["without_result"] == 1
    assert summary["candidates"]["mean"] == 2
    assert summary["asked"] == 4
    # q1's best positive is p1, above all; q2's only positive is not in the corpus
    assert summary["above_best_positive"] == {"queries": 0, "of": 1, "percent": 0.0}
    assert summary["positives"] == {"labelled": 2, "pooled": 1, "per_query": 0.6667}
    assert summary["systems"] == {
        "bm25.test": {"found": 4, "alone": 2},
        "de.test": {"found": 4, "alone": 2},
    }


def test_depth_and_top(make_job, inputs, tmp_path):
    _, pool, sheet, _ = audit(make_job, tmp_path / "a-0123456789", inputs, depth=1, top=1)
    assert {(row["query_id"], row["doc_id"]) for row in pool} == {
        ("q1", "p1"),
        ("q1", "p3"),
        ("q2", "p2"),
        ("q2", "p4"),
    }
    assert [row["doc_id"] for row in sheet] == ["p3", "p4"]


def test_judges_rank_and_give_a_verdict(
    make_job, make_run, dataset, tokens, cross_model, joint_model, tmp_path
):
    names = pq.read_table(dataset.path("corpus.parquet"))["doc_id"].to_pylist()
    queries = pq.read_table(dataset.path("queries.parquet"))["query_id"].to_pylist()
    test = queries[40:]
    runs = {
        f"run.{r}": make_run(
            tmp_path / "r" / f"s{r}.test-0123456789",
            dataset,
            "test",
            {q: [names[(7 * i + 5 * j + r) % 60] for j in range(6)] for i, q in enumerate(test)},
        )
        for r in range(2)
    }
    inputs = {"dataset": dataset, **runs, "judge.0": cross_model, "judge.1": joint_model}
    inputs |= {"judge_tokens.0": tokens, "judge_tokens.1": tokens}
    how = {"precision": "fp32", "batch_tokens": 512, "depth": 5, "top": 3}
    _, pool, _, _ = audit(make_job, tmp_path / "a-0123456789", inputs, **how)
    likeliest = [
        max(row["score"] for row in pool if row["query_id"] == query and row["asked"])
        for query in test
    ]
    middle = float(np.median(likeliest))
    _, pool, sheet, summary = audit(
        make_job, tmp_path / "b-0123456789", inputs, **how | {"threshold": middle}
    )
    opened = Tokens.open(tokens)

    def judged(pairs):
        left = [opened.queries[queries.index(query)] for query, _ in pairs]
        right = [opened.passages[names.index(doc)] for _, doc in pairs]
        each = [
            CrossEncoder.load(model.folder / "cross")
            .score(left, right, opened.template, "fp32", 512)
            .astype(float)
            for model in (cross_model, joint_model)
        ]
        return np.mean([1 / (1 + np.exp(-logits)) for logits in each], axis=0)

    assert [row["score"] for row in pool] == pytest.approx(
        judged([(r["query_id"], r["doc_id"]) for r in pool]), abs=1e-6
    )
    positives = dict(
        zip(test, judged([(q, f"{q.removeprefix('test-')}-2") for q in test]), strict=True)
    )
    above, better = set(), set()
    for query in test:
        mine = [row for row in pool if row["query_id"] == query]
        assert [row["rank"] for row in mine] == list(range(1, len(mine) + 1))
        keys = [(-row["score"], row["doc_id"]) for row in mine]
        assert keys == sorted(keys)
        unlabelled = [row for row in mine if row["relevance"] is None][:3]
        assert [row for row in mine if row["asked"]] == unlabelled
        above |= {query for row in unlabelled if row["score"] > middle}
        better |= {query for row in unlabelled if row["score"] > positives[query]}
    assert 0 < len(above) < 20
    assert summary["above_threshold"] == {
        "queries": len(above),
        "of": 20,
        "percent": 5.0 * len(above),
    }
    assert summary["above_best_positive"] == {
        "queries": len(better),
        "of": 20,
        "percent": 5.0 * len(better),
    }
    assert summary["scored_by"] == f"mean probability of {cross_model.key}, {joint_model.key}"
    likely = sum(row["asked"] and row["score"] > middle for row in pool)
    assert summary["positives"]["likely"] == likely
    assert summary["positives"]["per_query_with_likely"] == pytest.approx(1 + likely / 20)
    assert len(sheet) == sum(row["asked"] for row in pool)


def test_labelled_positives_say_what_the_scores_of_a_judge_of_lists_mean(
    make_job, make_run, dataset, tokens, cross_model, tmp_path
):
    names = Collection(dataset).doc_ids().to_pylist()
    test = list(Collection(dataset).queries("test"))
    found = {q: [names[(7 * i + 5 * j) % 60] for j in range(6)] for i, q in enumerate(test)}
    inputs = {
        "dataset": dataset,
        "run.0": make_run(tmp_path / "r" / "s.test-0123456789", dataset, "test", found),
        "judge.0": cross_model,
        "judge_tokens.0": tokens,
    }
    how = {"precision": "fp32", "batch_tokens": 512, "depth": 6}
    _, plain, *_ = audit(make_job, tmp_path / "a-0123456789", inputs, **how)
    artifact, pool, _, summary = audit(
        make_job, tmp_path / "b-0123456789", inputs, calibrate=True, **how
    )
    logits = {
        (row["query_id"], row["doc_id"]): math.log(row["score"] / (1 - row["score"]))
        for row in plain
    }
    fit = artifact.manifest.facts["calibration"]
    expected = [
        1
        / (1 + math.exp(-fit["slope"] * logits[row["query_id"], row["doc_id"]] - fit["intercept"]))
        for row in pool
    ]
    assert [row["score"] for row in pool] == pytest.approx(expected, abs=1e-4)
    labelled = sum(len(docs) for docs in Collection(dataset).qrels("test").values())
    pooled = sum(row["relevance"] is not None for row in pool)
    assert (fit["positives"], fit["others"]) == (labelled, len(pool) - pooled)
    # scores of a model that has learned nothing: each has the share of positives, more or less
    assert np.mean(expected) == pytest.approx(labelled / (labelled + fit["others"]), abs=0.1)
    assert summary["scored_by"] == f"calibrated mean probability of {cross_model.key}"


def test_without_a_labelled_positive_nothing_is_calibrated(
    make_job, make_run, make_collection, make_tokens, dataset, cross_model, tmp_path
):
    passages = [(f"p{i}", "", "the moon and the sea") for i in range(3)]
    data = make_collection(
        tmp_path / "bare" / "dataset" / "bare-0123456789", passages, [("q", "moon", "test")]
    )
    tokens = make_tokens(tmp_path / "bare" / "tokens" / "bare-0123456789", data)
    ranked = make_run(tmp_path / "r" / "s.test-0123456789", data, "test", {"q": ["p0", "p1"]})
    inputs = {"dataset": data, "run.0": ranked, "judge.0": cross_model, "judge_tokens.0": tokens}
    artifact, *_ = audit(make_job, tmp_path / "a-0123456789", inputs, calibrate=True)
    assert "calibration" not in artifact.manifest.facts
    assert any("no labelled positive" in line for line in artifact.manifest.facts["warnings"])


def test_a_split_without_judgements_is_all_unlabelled(
    make_job, make_collection, make_run, tmp_path
):
    data = make_collection(tmp_path / "d-0123456789", PASSAGES, QUERIES)
    ranked = make_run(tmp_path / "r-0123456789", data, "test", {"q1": ["p1"]})
    _, pool, _, summary = audit(
        make_job, tmp_path / "a-0123456789", {"dataset": data, "run.0": ranked}
    )
    assert [(row["doc_id"], row["asked"]) for row in pool] == [("p1", True)]
    assert summary["above_best_positive"] == {"queries": 0, "of": 0, "percent": None}


def test_runs_that_do_not_fit(make_job, make_run, inputs, tmp_path):
    data = inputs["dataset"]
    with pytest.raises(UserError, match="is a run of split train, but split is test"):
        train = make_run(tmp_path / "r" / "t-0123456789", data, "train", {"t1": ["p1"]})
        audit(make_job, tmp_path / "a-0123456789", inputs | {"run.0": train})
    with pytest.raises(UserError, match="holds no query of split test"):
        none = make_run(tmp_path / "r" / "n-0123456789", data, "test", {"t1": ["p1"]})
        audit(make_job, tmp_path / "a-0123456789", inputs | {"run.0": none})
    with pytest.raises(UserError, match=r"no run; give at least one as run\.0"):
        audit(make_job, tmp_path / "a-0123456789", {"dataset": data})
    assert not (tmp_path / "a-0123456789" / "stage.json").exists()


@pytest.mark.parametrize(
    "ranked", [{}, {"q2": ["p5"]}], ids=["nothing at all", "for queries that are not looked at"]
)
def test_a_system_that_finds_nothing_adds_nothing_to_the_pools(
    make_job, make_run, inputs, tmp_path, ranked
):
    silent = make_run(tmp_path / "r" / "silent.test-0123456789", inputs["dataset"], "test", ranked)
    pools = []
    for name, runs in (("a", {}), ("b", {"run.2": silent})):
        out = tmp_path / f"{name}-0123456789"
        _, pool, _, summary = audit(make_job, out, inputs | runs, queries=2)  # q1 and q3
        pools.append([row["doc_id"] for row in pool])
    assert pools[0] == pools[1] == ["p1", "p3", "p2"]
    assert summary["systems"]["silent.test"] == {"found": 0, "alone": 0}


def test_a_query_that_is_a_passage_is_not_pooled_for_itself(
    make_job, make_collection, make_run, tmp_path
):
    queries = [("p1", "passage number 1", "test"), ("q1", "first", "test")]
    qrels = [("p1", "p2", 1, "test")]
    data = make_collection(tmp_path / "d" / "own-0123456789", PASSAGES, queries, qrels)
    ranked = {"p1": ["p1", "p3", "p2"], "q1": ["p1", "p4"]}
    bm25 = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", ranked)
    for ignored, of_own in ((True, ["p3", "p2"]), (False, ["p1", "p3"])):
        out = tmp_path / f"a-{ignored}-0123456789"
        _, pool, _, _ = audit(
            make_job, out, {"dataset": data, "run.0": bm25}, ignore_identical_ids=ignored
        )
        pooled = [(row["query_id"], row["doc_id"]) for row in pool]
        assert pooled == [*(("p1", doc) for doc in of_own), ("q1", "p1"), ("q1", "p4")]


def test_excluded_passages_are_not_pooled(make_job, make_collection, make_run, tmp_path):
    """Of q1 the best is excluded, and the corpus lacks another; of q2 all that is found is excluded."""
    qrels = [
        ("q1", "p1", EXCLUDED, "test"),
        ("q1", "gone", EXCLUDED, "test"),
        ("q1", "p5", 1, "test"),
        ("q2", "p2", EXCLUDED, "test"),
    ]
    data = make_collection(tmp_path / "d" / "own-0123456789", PASSAGES, QUERIES, qrels)
    ranked = {"q1": ["p1", "p3", "p2", "p4"], "q2": ["p2"], "q3": ["p1"]}
    bm25 = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", ranked)
    out = tmp_path / "a-0123456789"
    _, pool, sheet, summary = audit(make_job, out, {"dataset": data, "run.0": bm25})
    pairs = [("q1", "p3"), ("q1", "p2"), ("q3", "p1")]
    assert [(row["query_id"], row["doc_id"]) for row in pool] == pairs
    assert [(row["query_id"], row["doc_id"]) for row in sheet] == pairs
    assert summary["without_result"] == 1


def test_so_many_queries_are_looked_at_and_named(make_job, inputs, tmp_path):
    artifact, pool, sheet, summary = audit(make_job, tmp_path / "a-0123456789", inputs, queries=2)
    # sha1 of q1, q2, q3 begins with e04, f23, 794: the two lowest are q1 and q3
    assert pq.read_table(artifact.path("queries.parquet")).to_pylist() == [
        {"query_id": "q1", "split": "test"}, {"query_id": "q3", "split": "test"}
    ]  # fmt: skip
    assert {row["query_id"] for row in [*pool, *sheet]} == {"q1"}
    assert summary["queries"] == 2
