"""Positive-aware mining is planned from scores that can be compared, or refused in one line."""

from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def drawn(configured):
    """`drawn(**candidates)`: the stage that draws the training lists of a dual encoder; `keys` change the rest."""

    def plan(keys=None, **candidates):
        config = {
            **configured("models.mine", {"like": "de_bm25neg", "candidates": candidates}),
            **(keys or {}),
        }
        return Plan(config, ROOT).planner.model("mine", "here").upstream["candidates"]

    return plan


def test_without_the_key_nothing_changes(drawn):
    plain = drawn()
    assert "below_positive" not in plain.values
    assert drawn(below_positive=None).digest == plain.digest
    assert drawn(below_positive={"share": 0.95}).digest != plain.digest


def test_queries_that_another_run_answers_better_are_found_by_it(drawn):
    plain = drawn()
    behind = drawn(behind={"than": "bm25+ce_bm25neg"})
    assert behind.values["behind"] == {"first_rank": 2, "depth": 15}
    assert behind.upstream["ahead"].kind == "rerank"
    assert behind.upstream["ahead"].name.endswith(".train")
    assert "behind" not in plain.values
    own = {"datasets": {"pydocs": {"ignore_identical_ids": True}}}
    without_own = drawn(own, behind={"than": "bm25"})
    assert without_own.values["behind"] == behind.values["behind"] | {"of_results": True}


@pytest.mark.parametrize(
    ("candidates", "line"),
    [
        ({"from": "random"}, r"candidates.behind: random ranks no passage for a query"),
        ({"labels": "rank", "positives": 1, "first_rank": 2}, r"labels is rank, .* set qrels"),
        (
            {"behind": {"than": "bm25", "first_rank": 9, "depth": 8}},
            r"depth is 8, before first_rank",
        ),
        ({"behind": {"than": "bm26"}}, r"candidates.behind.than: .*bm26"),
        ({"behind": {"than": "bm25", "depth": 5000}}, r"candidates.behind.depth"),
    ],
)
def test_what_cannot_be_behind_is_refused(drawn, candidates, line):
    with pytest.raises(UserError, match=line):
        drawn(**{"behind": {"than": "bm25"}, **candidates})


@pytest.mark.parametrize("source", ["bm25", "encoder", "bm25.krovetz"])
def test_a_share_of_scores_with_a_zero(drawn, source):
    stage = drawn(**{"from": source})
    mined = drawn(**{"from": source, "below_positive": {"share": 0.95}})
    assert mined.values["below_positive"] == {"share": 0.95, "margin": None, "judged": False}
    assert mined.upstream.keys() == stage.upstream.keys()


def test_a_judge_is_an_input_with_or_without_denoising(drawn):
    below = {"margin": 0.1, "by": "ce_bm25neg"}
    stage = drawn(below_positive=below)
    assert stage.upstream["judge.0"].name == "ce_bm25neg"
    assert stage.values["below_positive"] == {"share": None, "margin": 0.1, "judged": True}
    both = drawn(below_positive=below, denoise={"by": "ce_bm25neg"})
    assert both.upstream["judge.0"] is not None
    assert both.values["denoise"]["negative_below"] == 0.1


def test_a_calibrated_judge_has_dev_s_run_as_an_input(drawn):
    plain = drawn(denoise={"by": "ce_bm25neg"})
    calibrated = drawn(denoise={"by": "ce_bm25neg", "calibrate": "dev"})
    assert calibrated.upstream["calibration"].name == "bm25.dev"
    assert calibrated.values["denoise"] == plain.values["denoise"] | {"calibrate": "dev"}
    assert "calibration" not in plain.upstream
    with pytest.raises(
        UserError, match=r"candidates.denoise.calibrate needs a run `from` and labels: qrels"
    ):
        drawn(**{"from": "random", "denoise": {"by": "ce_bm25neg", "calibrate": "dev"}})
    with pytest.raises(UserError, match=r"denoise.calibrate_queries is 9, but calibrate is null"):
        drawn(denoise={"by": "ce_bm25neg", "calibrate_queries": 9})


FUSED = {"fusions": {"both": {"method": "rrf", "of": ["bm25", "encoder"], "k": 60}}}
NO_ZERO = "have no zero (neither BM25 nor a cosine); say margin, or by: a cross-encoder"


@pytest.mark.parametrize(
    ("keys", "candidates", "line"),
    [
        ({}, {"below_positive": {}}, "below_positive has neither of share and margin"),
        (
            {},
            {"below_positive": {"share": 0.9, "margin": 0.1}},
            "below_positive has both of share and margin",
        ),
        ({}, {"below_positive": {"share": 1.5}}, "below_positive.share is 1.5; allowed: ≤ 1"),
        (
            {},
            {"from": "bm25+ce_bm25neg", "below_positive": {"share": 0.9}},
            f"bm25+ce_bm25neg {NO_ZERO}",
        ),
        (FUSED, {"from": "both", "below_positive": {"share": 0.9}}, f"both {NO_ZERO}"),
        (
            {"rerank": {"depth": 20}},
            {"from": "bm25+ce_bm25neg", "below_positive": {"margin": 1.0}},
            "candidates.depth is 50, but bm25+ce_bm25neg re-ranks only 20 passages per query",
        ),
        (
            {},
            {"from": "random", "below_positive": {"margin": 1.0}},
            "random has no scores of positives",
        ),
        (
            {},
            {"from": "given", "below_positive": {"margin": 1.0}},
            "given has no scores of positives",
        ),
        (
            {},
            {"below_positive": {"margin": 0.1, "by": "ce_bm25neg"}, "denoise": {"by": "ce_deneg"}},
            "below_positive.by is ce_bm25neg, but denoise.by is ce_deneg; lists have the same judges for both",
        ),
        (
            {},
            {"labels": "judge", "below_positive": {"margin": 0.1}, "denoise": {"by": "ce_bm25neg"}},
            "below_positive: labels is judge, so there is no positive to compare with",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(drawn, keys, candidates, line):
    with pytest.raises(UserError) as error:
        drawn(keys, **candidates)
    (message,) = str(error.value).splitlines()
    assert line in message
