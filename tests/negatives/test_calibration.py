"""`denoise.calibrate`: a probability that is fitted to dev's known positives and other candidates."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from pytest import approx

from tandem.errors import UserError
from tandem.negatives.candidates import run
from tandem.negatives.judging import fit_line
from tandem.retrieval.pair_scores import to_probability
from tandem.store.artifact import open_artifact


def test_two_scores_by_hand():
    # Each kind has one score: the line goes through Platt's targets 2/3 and 1/3, the logits ± ln 2, at 5 and 3.
    slope, intercept = fit_line(np.array([5.0]), np.array([3.0]))
    assert (slope, intercept) == approx((math.log(2), -4 * math.log(2)), rel=1e-4)


def test_numbers_of_either_kind_do_not_matter():
    rng = np.random.default_rng(0)
    positives, others = rng.normal(3, 1, 400), rng.normal(0, 1, 20_000)
    slope, intercept = fit_line(positives, others)
    # Two normal distributions of variance 1: the log of the ratio of their densities is 3 x - 4.5
    assert (slope, intercept) == approx((3, -4.5), rel=0.15)
    shifted = fit_line(100 + 10 * positives, 100 + 10 * others)
    assert (10 * shifted[0], shifted[1] + 100 * shifted[0]) == approx((slope, intercept), rel=1e-3)


@pytest.fixture
def draw(make_job, dataset, tokens, train_run, cross_model, tmp_path):
    """`draw(name, calibrate, calibration)`: rows and the artifact of denoised lists."""

    def make(name, calibrate=None, queries=None, **inputs):
        denoise = {
            "negative_below": 0.5,
            "positive_above": None,
            "hybrid": True,
            "calibrate": calibrate,
        }
        denoise["calibrate_queries"] = queries
        params = {
            "depth": 9,
            "split": "train",
            "seed": 1,
            "denoise": denoise,
            "precision": "fp32",
            "batch_tokens": 256,
        }
        inputs |= {"dataset": dataset, "run": train_run, "tokens": tokens}
        inputs |= {"judge.0": cross_model, "judge_tokens.0": tokens}
        job = make_job("candidates", tmp_path / f"{name}-0123456789", params, inputs)
        run(job)
        return pq.read_table(job.out / "candidates.parquet").to_pylist(), open_artifact(job.out)

    return make


def test_the_stage_maps_the_judge_s_scores_and_records_how(draw, dev_run):
    plain, _ = draw("plain")
    rows, artifact = draw("calibrated", "dev", calibration=dev_run)
    fit = artifact.manifest.facts["calibration"]
    assert fit["positives"] == 20  # one of each dev query
    assert fit["others"] > 20
    judged = {
        (row["query_row"], row["passage_row"]): row["judge"]
        for row in plain
        if row["list"] == "undenoised"
    }
    for row in rows:
        if row["list"] == "undenoised":
            before = judged[row["query_row"], row["passage_row"]]
            logit = math.log(before / (1 - before))
            assert row["judge"] == approx(
                float(to_probability(fit["slope"] * logit + fit["intercept"])), abs=1e-5
            )


def test_some_queries_of_dev_are_enough(draw, dev_run):
    _, artifact = draw("few", "dev", queries=5, calibration=dev_run)
    assert artifact.manifest.facts["calibration"]["positives"] == 5


def test_without_pairs_of_dev_it_is_refused(draw, train_run):
    with pytest.raises(
        UserError, match="calibrate is dev, but dev has 0 known positives and 0 other candidates"
    ):
        draw("empty", "dev", calibration=train_run)
