"""Which validation decides, when a training ends early, and what is said of one that did not help."""

import math

import numpy as np
from pytest import approx

from tandem.config.training import CrossTrain
from tandem.contrib.validation.outcomes import warn_of_loss_to_lists, warn_of_no_gain
from tandem.contrib.validation.within import is_exhausted
from tandem.extras.validation.validation_points import (
    ValidationPoint,
    choose_point,
    log_point,
    read_points,
)
from tandem.extras.validation.validation_sets import rank_passages, sum_ndcg


def history(*values, part="cross"):
    """Validations at steps 0, 10, 20, …"""
    return [ValidationPoint(10 * i, {part: value}) for i, value in enumerate(values)]


def test_validations_are_read_back_from_the_log():
    written = [
        ValidationPoint(0, {"dual": 0.25, "cross": 0.5}),
        ValidationPoint(3, {"dual": 0.75, "cross": 0.5}),
    ]
    log = [row for point in written for row in (*log_point(point), (point.step, "loss", 1.0))]
    assert read_points(log) == written


def test_the_best_validation_counts_the_start_and_prefers_the_earlier():
    assert choose_point(history(0.3, 0.5, 0.5)).step == 10
    assert choose_point(history(0.5, 0.5, 0.4)).step == 0


def test_no_part_of_a_joint_model_loses_for_the_others_gain():
    # the second has the best mean, but a worse re-ranker
    steps = [(0.5, 0.4), (0.9, 0.3), (0.6, 0.4)]
    validated = [
        ValidationPoint(i, {"dual": dual, "cross": cross}) for i, (dual, cross) in enumerate(steps)
    ]
    assert choose_point(validated).step == 2


def test_patience_counts_validations_without_a_gain():
    train = CrossTrain(patience=2)
    assert not is_exhausted(train, history(0.5, 0.4))
    assert is_exhausted(train, history(0.5, 0.4, 0.5))
    assert not is_exhausted(train, history(0.5, 0.4, 0.6, 0.5))
    assert not is_exhausted(CrossTrain(patience=None), history(0.5, 0.4, 0.3, 0.2))
    assert not is_exhausted(CrossTrain(choose="last", patience=1), history(0.5, 0.4, 0.3))


def test_a_training_without_a_gain_is_a_warning():
    warning = warn_of_no_gain(history(0.4, 0.3, 0.35), "dev")
    assert (
        warning
        == "training did not help, its start is kept: dev nDCG@10 0.4000 at the start, 0.3500 after 20 steps"
    )
    assert warn_of_no_gain(history(0.4, 0.5, 0.35), "dev") == ""
    assert warn_of_no_gain(history(0.4, 0.5, 0.35), "last").startswith("ends worse than its start")
    assert warn_of_no_gain(history(0.4, 0.3, 0.45), "last") == ""
    assert warn_of_no_gain([], "last") == ""


def test_a_re_ranker_below_its_list_is_a_warning():
    assert warn_of_loss_to_lists(ValidationPoint(5, {"cross": 0.3}), 0.35).endswith(
        "nDCG@10 0.3000 instead of 0.3500"
    )
    assert warn_of_loss_to_lists(ValidationPoint(5, {"cross": 0.3}), 0.3) == ""
    assert warn_of_loss_to_lists(ValidationPoint(5, {"dual": 0.3}), 0.35) == ""


def test_ndcg_by_hand():
    grades = [{7: 2, 8: 1}, {5: 1}]
    ranked = np.array([[8, 3, 7], [1, 2, -1]])
    # grades 1, 0, 2 at ranks 1 to 3, ideally 2, 1; the second query finds nothing
    first = (1 / math.log2(2) + 2 / math.log2(4)) / (2 / math.log2(2) + 1 / math.log2(3))
    assert sum_ndcg(ranked, grades) == approx(first)
    assert sum_ndcg(np.array([[7, 8]]), grades[:1]) == approx(1.0)


def test_of_equal_scores_the_later_passage_stands_first_and_padding_last():
    scores, passages = np.array([[1.0, 3.0, 1.0, 9.0]]), np.array([[4, 5, 6, -1]])
    assert rank_passages(scores, passages).tolist() == [[5, 6, 4, -1]]
