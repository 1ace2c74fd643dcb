"""How hard negatives are: counts and shares by hand, and the judges' probabilities as the pair store has them."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from listed import listed_rows

from tandem.contrib.analysis import figures
from tandem.contrib.analysis.hardness import describe_negatives, run
from tandem.errors import UserError
from tandem.retrieval.pair_scores import PairScores, to_probability
from tandem.store.artifact import open_artifact

ROWS = pd.DataFrame(
    [
        ("a", "q1", 1, 0, 0.9), ("a", "q2", 1, 0, 0.4),
        ("a", "q1", 0, 1, 0.6), ("a", "q1", 0, 3, 0.5), ("a", "q2", 0, 5, 0.2), ("a", "q2", 0, 0, 0.1),
        ("b", "q1", 0, 2, 0.3),
    ],
    columns=["source", "query_id", "label", "rank", "judge"],
)  # fmt: skip


def test_shares_and_quartiles_by_hand():
    counts = describe_negatives(ROWS, 0.5)
    # ranks 1, 3, 5: the passage without a rank is not among them; 0.5 is not above 0.5
    assert counts["a"] == {
        "negatives": 4, "queries": 2, "rank": [2.0, 3.0, 4.0], "judge": [0.175, 0.35, 0.525],
        "false_negatives": 25.0, "found_positives": 50.0,
    }  # fmt: skip
    assert counts["b"]["found_positives"] is None
    assert list(describe_negatives(ROWS, None)["b"]) == ["negatives", "queries", "rank"]


@pytest.fixture
def job(make_job, dataset, drawn, tmp_path):
    """`job(params, **inputs)`: the stage's job over two models' lists, which are the same."""

    def make(params=(), **inputs):
        settings = {
            "models": ["ce", "joint"],
            "drawn_from": ["bm25", "bm25"],
            "queries": 3,
            "threshold": 0.5,
            **dict(params),
        }
        lists = {"candidates.0": drawn, "candidates.1": drawn}
        return make_job(
            "hardness",
            tmp_path / "negatives-00000000d3",
            settings,
            {"dataset": dataset, **lists, **inputs},
        )

    return make


def test_every_row_has_the_judge_s_probability(job, cross_model, tokens):
    stage = job(
        {"precision": "fp32", "batch_tokens": 2048},
        **{"judge.0": cross_model, "judge_tokens.0": tokens},
    )
    run(stage)
    rows = pq.read_table(open_artifact(stage.out).path("negatives.parquet")).to_pandas()
    names = ["ce: bm25", "ce: bm25, denoised", "joint: bm25", "joint: bm25, denoised"]
    assert rows.groupby("source", sort=False).size().to_dict() == dict.fromkeys(names, 3 * 6)
    lists = pd.DataFrame(listed_rows(stage.inputs["candidates.0"]))
    selected = lists[lists["query_id"].isin(set(rows["query_id"]))]
    scores = PairScores(cross_model, tokens, "fp32", 2048)
    expected = to_probability(
        scores.score(selected["query_row"].to_numpy(), selected["passage_row"].to_numpy())
    )
    assert np.allclose(rows["judge"][: len(selected)], expected, atol=1e-6)
    summary = json.loads((stage.out / "summary.json").read_text())
    assert summary["judges"] == [cross_model.key]
    assert summary["dropped"] == {"ce": {"known positive": 12}, "joint": {"known positive": 12}}
    # four of five negatives have a rank: 10, 30, 40, 50
    assert summary["sources"]["ce: bm25"]["rank"] == [25.0, 35.0, 42.5]
    assert summary["sources"]["joint: bm25, denoised"]["rank"] == [20.0, 30.0, 40.0]


def test_without_judges_ranks_are_told_and_shown(job):
    stage = job()
    run(stage)
    artifact = open_artifact(stage.out)
    assert figures.compare_sources(artifact)["negatives"].tolist() == [15, 15, 15, 15]
    assert figures.compare_sources(artifact)["judged false (%)"].isna().all()
    shown = figures.plot_hardness(artifact, "rank").to_dict()
    values = next(iter(shown["datasets"].values()))
    # ranks 10, 20, 30, 40, 50 in bins of three: a fifth of the denoised list's negatives each
    of_denoised = [
        (row["middle"], row["share"]) for row in values if row["source"] == "ce: bm25, denoised"
    ]
    assert of_denoised == [(11.0, 20.0), (20.0, 20.0), (29.0, 20.0), (41.0, 20.0), (50.0, 20.0)]


def test_a_model_without_lists_is_one_line(job):
    with pytest.raises(UserError, match="hardness: 2 training lists, but 1 models; one name each"):
        run(job({"models": ["ce"]}))
