"""The audit of similar queries on collections where the answer is known."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.config.retrieval import Inference
from tandem.contrib.audits.similar_queries import open_query_judge, run
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.tokens import Tokens
from tandem.retrieval.encode import run as encode
from tandem.store.artifact import open_artifact

PARAMS = {"depth": 3, "threshold": 0.5}
QUERIES = [
    ("t1", "how tall is mount everest", "train"),
    ("t2", "How tall is Mount Everest?", "train"),
    ("t3", "mount everest height", "train"),
    ("t4", "capital of france", "train"),
    ("t5", "?", "train"),
    ("d1", "how tall is mount everest", "dev"),
    ("d2", "best pizza dough", "dev"),
    ("e1", "capital of france?", "test"),
    ("e2", "capital of peru", "test"),
    ("x1", "height of mount everest", "extra"),
]


@pytest.fixture(scope="module")
def collection(make_collection, tmp_path_factory):
    out = tmp_path_factory.mktemp("similar") / "mini" / "dataset" / "mini-0123456789"
    return make_collection(out, [("p1", "", "Everest")], QUERIES)


def audit(make_job, out, inputs, **params):
    run(make_job("similar_queries", out, PARAMS | params, inputs))
    artifact = open_artifact(out, "similar_queries")
    results = {
        name: json.loads(artifact.path(f"{name}.json").read_text())
        for name in ("summary", "examples")
    }
    rows = {
        name: pq.read_table(artifact.path(f"{name}.parquet")).to_pylist()
        for name in ("pairs", "queries", "train")
    }
    return artifact, results | rows


def test_counts_of_a_collection_by_hand(make_job, collection, tmp_path):
    artifact, results = audit(make_job, tmp_path / "a-0123456789", {"dataset": collection})
    similar = {
        (row["other_query_id"], row["train_query_id"]) for row in results["pairs"] if row["similar"]
    }
    # n = 5. idf(mount), idf(everest): 1 + ln(6/4) = 1.405; how, tall, is: 1 + ln(6/3) = 1.693; height, of, capital,
    # france: 1 + ln(6/2) = 2.099; peru: 1 + ln 6 = 2.792.
    mount, how, height, peru = 1 + math.log(1.5), 1 + math.log(2), 1 + math.log(3), 1 + math.log(6)
    everest = math.sqrt(2 * mount**2 + 3 * how**2)
    short = math.sqrt(2 * mount**2 + height**2)
    x1_t3 = short / math.sqrt(2 * mount**2 + 2 * height**2)
    d1_t3 = 2 * mount**2 / (everest * short)
    e2_t4 = 2 * height**2 / (math.sqrt(3) * height * math.sqrt(2 * height**2 + peru**2))
    assert d1_t3 < 0.5 < e2_t4 < x1_t3
    scores = {
        (row["other_query_id"], row["train_query_id"]): row["score"] for row in results["pairs"]
    }
    assert scores["d1", "t3"] == pytest.approx(d1_t3, abs=1e-6)
    assert scores["e2", "t4"] == pytest.approx(e2_t4, abs=1e-6)
    assert scores["x1", "t3"] == pytest.approx(x1_t3, abs=1e-6)
    assert scores["e1", "t4"] == pytest.approx(1, abs=1e-6)
    assert similar == {("d1", "t1"), ("d1", "t2"), ("e1", "t4"), ("e2", "t4"), ("x1", "t3")}
    assert results["queries"] == [
        {"query_id": "d1", "split": "dev"},
        {"query_id": "e1", "split": "test"},
        {"query_id": "e2", "split": "test"},
        {"query_id": "x1", "split": "extra"},
    ]
    assert results["train"] == [{"query_id": q} for q in ("t1", "t2", "t3", "t4")]
    summary = results["summary"]
    assert summary["train"] == {"queries": 5, "similar": 4, "percent": 80.0}
    assert summary["others"] == {"queries": 5, "similar": 4, "percent": 80.0}
    assert summary["splits"]["dev"] == {
        "queries": 2,
        "similar": 1,
        "percent": 50.0,
        "train_similar": 2,
    }
    assert list(summary["splits"]) == ["dev", "test", "extra"]
    assert summary["pairs"]["same"] == 3
    assert summary["decided_by"] == "cosine of TF-IDF vectors of words"
    assert (
        sum(summary["histogram"]["pairs"]) == len(results["pairs"]) == summary["pairs"]["proposed"]
    )
    assert artifact.manifest.facts["train_similar"] == 4


def test_rows_are_sorted_and_a_higher_threshold_keeps_only_the_same_words(
    make_job, collection, tmp_path
):
    _, results = audit(make_job, tmp_path / "a-0123456789", {"dataset": collection}, threshold=1)
    assert {
        (row["other_query_id"], row["train_query_id"]) for row in results["pairs"] if row["similar"]
    } == {
        ("d1", "t1"),
        ("d1", "t2"),
        ("e1", "t4"),
    }
    splits = ["dev", "test", "extra"]
    keys = [
        (splits.index(r["split"]), r["other_query_id"], -r["score"], r["train_query_id"])
        for r in results["pairs"]
    ]
    assert keys == sorted(keys)


@pytest.mark.parametrize(("splits", "doubted"), [(None, True), (["dev"], False)])
def test_it_doubts_what_finds_most_training_queries_similar(
    splits, doubted, make_job, collection, tmp_path
):
    """Four of the five are similar to queries of any split, two to one of dev."""
    artifact, _ = audit(make_job, tmp_path / "a-0123456789", {"dataset": collection}, splits=splits)
    warnings = artifact.manifest.facts.get("warnings", [])
    assert any("training queries count as similar" in line for line in warnings) == doubted


def test_the_same_words_count_beyond_the_depth(make_job, collection, tmp_path):
    _, results = audit(
        make_job, tmp_path / "a-0123456789", {"dataset": collection}, depth=1, threshold=0.9
    )
    mine = [row["train_query_id"] for row in results["pairs"] if row["other_query_id"] == "d1"]
    assert mine == ["t1", "t2"]
    # d1 and e1 have as many similar ones as were asked for
    assert results["summary"]["saturated"] == 2


def test_only_the_splits_asked_for(make_job, collection, tmp_path):
    _, results = audit(
        make_job,
        tmp_path / "a-0123456789",
        {"dataset": collection},
        splits=["train", "test", "none"],
    )
    assert {row["split"] for row in results["pairs"]} == {"test"}
    assert results["summary"]["others"]["queries"] == 2


def test_queries_that_models_learn_from_are_not_compared_with_train(
    make_job, make_collection, tmp_path
):
    queries = [
        ("t1", "open a file", "train"),
        ("u1", "Open a file?", "unlabelled"),
        ("e1", "parse a date", "test"),
    ]
    data = make_collection(tmp_path / "d-0123456789", [("p", "", "x")], queries)
    _, results = audit(make_job, tmp_path / "a-0123456789", {"dataset": data})
    assert list(results["summary"]["splits"]) == ["test"]
    assert results["train"] == []


def test_a_dataset_without_training_queries_has_no_pairs(make_job, make_collection, tmp_path):
    data = make_collection(tmp_path / "d-0123456789", [("p", "", "x")], [("e1", "a", "test")])
    _, results = audit(make_job, tmp_path / "a-0123456789", {"dataset": data})
    assert results["pairs"] == results["queries"] == results["train"] == []
    assert results["summary"]["train"] == {"queries": 0, "similar": 0, "percent": None}
    assert results["summary"]["others"] == {"queries": 1, "similar": 0, "percent": 0.0}


def test_examples_show_both_sides_of_the_threshold(make_job, collection, tmp_path):
    _, results = audit(make_job, tmp_path / "a-0123456789", {"dataset": collection})
    examples = results["examples"]
    assert [(e["other_query_id"], e["train_query_id"]) for e in examples["most similar"]] == [
        ("x1", "t3"),
        ("e2", "t4"),
    ]
    assert examples["most similar"][0]["other"] == "height of mount everest"
    assert all(e["score"] <= 0.5 for e in examples["just not"])
    assert examples["just not"][0]["score"] == max(e["score"] for e in examples["just not"])


def test_judges_decide_by_their_mean(
    make_job, dataset, make_tokens, cross_model, joint_model, tmp_path
):
    tokens = make_tokens(tmp_path / "tiny" / "tokens" / "tiny-0123456789", dataset)
    inputs = {"dataset": dataset, "judge.0": cross_model, "judge.1": joint_model}
    inputs |= {"judge_tokens.0": tokens, "judge_tokens.1": tokens}
    how = {"precision": "fp32", "batch_tokens": 512, "depth": 2}
    _, results = audit(make_job, tmp_path / "a-0123456789", inputs, **how)
    middle = float(np.median([row["score"] for row in results["pairs"]]))
    _, results = audit(make_job, tmp_path / "b-0123456789", inputs, **how | {"threshold": middle})
    queries = pq.read_table(dataset.path("queries.parquet"))["query_id"].to_pylist()
    opened = Tokens.open(tokens)
    left = [opened.queries[queries.index(row["other_query_id"])] for row in results["pairs"]]
    right = [opened.queries[queries.index(row["train_query_id"])] for row in results["pairs"]]
    logits = [
        CrossEncoder.load(model.folder / "cross")
        .score(left, right, opened.template, "fp32", 512)
        .astype(float)
        for model in (cross_model, joint_model)
    ]
    expected = np.mean([1 / (1 + np.exp(-values)) for values in logits], axis=0)
    assert [row["score"] for row in results["pairs"]] == pytest.approx(expected, abs=1e-6)
    assert [row["similar"] for row in results["pairs"]] == [
        row["score"] > middle for row in results["pairs"]
    ]
    assert 0 < sum(row["similar"] for row in results["pairs"]) < len(results["pairs"])
    assert results["summary"]["judges"] == [cross_model.key, joint_model.key]
    pair_scores = open_query_judge(
        cross_model, tokens, Inference(precision="fp32", batch_tokens=512)
    )
    rows = [
        [queries.index(row[name]) for row in results["pairs"]]
        for name in ("other_query_id", "train_query_id")
    ]
    assert pair_scores.score(*map(np.array, rows)) == pytest.approx(logits[0], abs=1e-6)
    assert pair_scores.computed == 0  # the audit has kept them


def test_vectors_propose(make_job, dataset, dual_model, joint_model, tokens, tmp_path):
    def embed(model, split):
        out = tmp_path / "embeddings" / f"{model.key[:2]}.{split}-0123456789"
        params = {
            "block": 16,
            "batch_tokens": 256,
            "precision": "fp32",
            "side": "queries",
            "split": split,
        }
        encode(
            make_job(
                "embeddings", out, params, {"dataset": dataset, "model": model, "tokens": tokens}
            )
        )
        return open_artifact(out)

    vectors = {f"vectors.{split}": embed(dual_model, split) for split in ("train", "dev", "test")}
    _, results = audit(
        make_job, tmp_path / "a-0123456789", {"dataset": dataset, **vectors}, threshold=0.9
    )
    raw = {
        split: np.concatenate(
            [np.load(p) for p in sorted(vectors[f"vectors.{split}"].folder.glob("blocks/*.npy"))]
        )
        for split in ("train", "dev", "test")
    }
    units = {
        split: v.astype(float) / np.linalg.norm(v.astype(float), axis=1)[:, None]
        for split, v in raw.items()
    }
    ids = pq.read_table(vectors["vectors.dev"].path("ids.parquet"))["query_id"].to_pylist()
    train = pq.read_table(vectors["vectors.train"].path("ids.parquet"))["query_id"].to_pylist()
    cosine = units["dev"] @ units["train"].T
    mine = [row for row in results["pairs"] if row["split"] == "dev"]
    assert len(mine) == 20 * 3
    for row in mine:
        at, to = ids.index(row["other_query_id"]), train.index(row["train_query_id"])
        assert row["score"] == pytest.approx(cosine[at, to], abs=1e-6)
        assert cosine[at, to] >= np.sort(cosine[at])[-3] - 1e-6
    assert results["summary"]["proposed_by"] == "cosine of query vectors"

    with pytest.raises(
        UserError, match=r"vectors\.test is missing \(given: vectors\.dev, vectors\.train\)"
    ):
        few = {role: artifact for role, artifact in vectors.items() if role != "vectors.test"}
        audit(make_job, tmp_path / "b-0123456789", {"dataset": dataset, **few})
    with pytest.raises(UserError, match="by several models"):
        other = {**vectors, "vectors.test": embed(joint_model, "test")}
        audit(make_job, tmp_path / "c-0123456789", {"dataset": dataset, **other})
    assert not (tmp_path / "c-0123456789" / "stage.json").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depth": 0}, "depth is 0; allowed: ≥ 1"),
        ({"threshold": 1.5}, "threshold is 1.5; allowed: ≤ 1"),
    ],
)
def test_parameters_that_mean_nothing(make_job, collection, tmp_path, wrong, message):
    with pytest.raises(UserError, match=message):
        audit(make_job, tmp_path / "a-0123456789", {"dataset": collection}, **wrong)
