"""Which validation decides, when a training ends early, and what is said of one that did not help."""

import math

import numpy as np
import pytest
from pytest import approx

from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.training.history import (
    ValidationPoint,
    choose_point,
    compute_chance,
    is_exhausted,
    list_sizes,
    log_point,
    read_points,
    warn_of_chance,
    warn_of_loss_to_lists,
    warn_of_no_gain,
)
from tandem.training.lists import Lists
from tandem.training.losses import find_supervision_loss
from tandem.training.validation import rank_passages, sum_ndcg

# a positive and eight negatives
LISTS = Lists(np.arange(4), np.arange(5) * 9, np.ones(4, np.int64), np.arange(36))


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


def test_chance_by_hand():
    assert compute_chance(find_supervision_loss("listwise", CrossTrain()), [4]) == approx(
        math.log(4)
    )
    assert compute_chance(find_supervision_loss("listwise", CrossTrain()), [2, 4]) == approx(
        (math.log(2) + math.log(4)) / 2
    )
    # one of four is relevant, and a bias says no more: the entropy of (1/4, 3/4)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert compute_chance(find_supervision_loss("pointwise", CrossTrain()), [4]) == approx(
        entropy, rel=1e-3
    )
    assert compute_chance(find_supervision_loss("hinge", CrossTrain(margin=0.5)), [3]) == approx(
        0.5
    )


def test_in_batch_lists_are_as_long_as_their_batch():
    assert list_sizes(CrossTrain(list_size=4), LISTS) == [4] * 4
    assert list_sizes(CrossTrain(list_size=4, in_batch=True, queries_per_batch=3), LISTS) == [6] * 4
    assert list_sizes(DualTrain(list_size=4, in_batch=True, queries_per_batch=3), LISTS) == [12] * 4
    # each list twice in a batch
    wide = DualTrain(list_size=4, in_batch=True, queries_per_batch=8, steps=5)
    assert list_sizes(wide, LISTS) == [4 + 7 * 4] * 4
    assert (
        list_sizes(wide.model_copy(update={"steps": None, "epochs": 1.0}), LISTS) == [4 + 3 * 4] * 4
    )
    assert (
        list_sizes(CrossTrain(list_size=4, in_batch=True, queries_per_batch=8, steps=5), LISTS)
        == [7] * 4
    )
    assert list_sizes(CrossTrain(list_size=20), LISTS) == [9] * 4


@pytest.mark.parametrize(
    ("train", "name", "value", "warned"),
    [
        (CrossTrain(loss="listwise", list_size=4), "loss", 1.358, True),  # ln 4 = 1.386
        (CrossTrain(loss="listwise", list_size=4), "loss", 1.2, False),
        (JointTrain(list_size=4), "sup", 1.39, True),
        (JointTrain(list_size=4, teacher="static"), "sup", 0.0, False),  # nothing is supervised
        (
            DualTrain(list_size=2, in_batch=False, passage_centric=0.5, loss="listwise"),
            "sup",
            0.35,
            True,
        ),
        # 2 ln 2
        (
            DualTrain(list_size=2, in_batch=False, loss="listwise", matryoshka=(8,)),
            "loss",
            1.38,
            True,
        ),
        (
            DualTrain(list_size=2, in_batch=False, loss="listwise", matryoshka=(8,)),
            "loss",
            1.0,
            False,
        ),
    ],
)
def test_a_loss_near_chance_is_a_warning(train, name, value, warned):
    log = [(step, row, 1.0 if step < 18 else value) for step in range(20) for row in {name, "loss"}]
    assert bool(warn_of_chance(train, log, LISTS)) is warned


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
