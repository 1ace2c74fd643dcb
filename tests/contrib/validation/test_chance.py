"""What is said of a training that learned nothing."""

import math

import numpy as np
import pytest
from pytest import approx

from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.contrib.validation.chance import compute_chance, list_sizes, warn_of_chance
from tandem.training.lists import Lists
from tandem.training.losses import find_supervision_loss

# a positive and eight negatives
LISTS = Lists(np.arange(4), np.arange(5) * 9, np.ones(4, np.int64), np.arange(36))


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


def test_chance_of_losses_of_ranks_is_a_mean_over_the_positive_s_ranks():
    # of four passages |1/r(p+) - 1/r(p-)|, summed over the negatives, for r(p+) from 1 to 4
    deltas = [1 / 2 + 2 / 3 + 3 / 4, 1 / 2 + 1 / 6 + 1 / 4, 2 / 3 + 1 / 6 + 1 / 12]
    deltas.append(3 / 4 + 1 / 4 + 1 / 12)
    expected = sum(deltas) / 4 / 3 * math.log(2)
    loss = find_supervision_loss("lambda_mrr", DualTrain())
    assert compute_chance(loss, [4]) == approx(expected) == approx(0.279, abs=1e-3)
    # each two of the three ranks have nDCG apart by so much, and the positive has either
    gains = [1, 1 / math.log2(3), 1 / 2]
    apart = 2 * (gains[0] - gains[1]) + 2 * (gains[0] - gains[2]) + 2 * (gains[1] - gains[2])
    loss = find_supervision_loss("lambdarank", CrossTrain())
    assert compute_chance(loss, [3]) == approx(apart / 3 * math.log(2))


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
    # retrieved at every step, whatever the files' lists hold
    live = DualTrain(live_negatives=200, loss="lambda_mrr", in_batch=False, list_size=2)
    assert list_sizes(live, LISTS) == [201] * 4


def test_of_two_positives_each_is_against_the_negatives_alone():
    # 3 + 2, 1 + 2 passages
    lists = Lists(np.arange(2), np.array([0, 5, 8]), np.array([3, 1]), np.arange(8))
    train = CrossTrain(list_size=4, positives=2)
    assert list_sizes(train, lists) == [3, 3]


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


@pytest.mark.parametrize(("value", "warned"), [(0.66, False), (0.693, True)])
def test_what_counts_as_chance_may_be_an_objectives_own(value, warned):
    # pairs in both orders: ln 2, where single passages of lists of four have an entropy of .56
    log = [(step, "loss", value) for step in range(20)]
    train = CrossTrain(loss="pointwise", list_size=4)
    assert bool(warn_of_chance(train, log, LISTS, expected=math.log(2))) is warned
