"""What an epoch visits: each query, each positive, or each row of a released file; which negatives stay."""

from collections import Counter

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from pytest import approx
from tiny_training import TRAINING, objective
from torch.nn.functional import binary_cross_entropy_with_logits

from tandem.training.forward import Seeds
from tandem.training.instances import (
    Instances,
    count_visits,
    iter_batches,
)
from tandem.training.lists import Batch, Lists

# Query 7 has the positives 10 and 11 and the negatives 20 to 25, query 9 the positive 12 and the negatives 26 to 28.
LISTS = Lists(
    np.array([7, 9]), np.array([0, 8, 12]), np.array([2, 1]), np.r_[10, 11, 20:26, 12, 26:29]
)


def epoch(instances, number=0):
    """The passages of every visit of an epoch by the instance's number, without padding."""
    places = [instances.visit(at, seed=1, epoch=number)[1] for at in range(len(instances))]
    return [LISTS.passages[at[at >= 0]].tolist() for at in places]


def test_every_positive_is_visited_once_with_its_own_negatives():
    instances = Instances(LISTS, 4, "positive", resample=False)
    first, second, third = epoch(instances)
    assert (len(instances), first[0], second[0], third[0]) == (3, 10, 11, 12)
    # dealt out: nothing twice while there is enough
    assert sorted(first[1:] + second[1:]) == [20, 21, 22, 23, 24, 25]
    assert sorted(third[1:]) == [26, 27, 28]
    assert epoch(instances, 1) == epoch(instances)  # the same in every epoch
    drawn = Instances(LISTS, 4, "positive")
    assert epoch(drawn, 1) != epoch(drawn)
    assert all(len(set(visit)) == 4 for visit in epoch(drawn))


def test_too_few_negatives_are_dealt_again_and_never_twice_to_one_positive():
    # 2 positives × 4 of 6 negatives: two of them are dealt twice; query 9 has three
    first, second, third = epoch(Instances(LISTS, 5, "positive", resample=False))
    assert (len(set(first)), len(set(second)), len(third)) == (5, 5, 4)
    assert sorted(Counter(first[1:] + second[1:]).values()) == [1, 1, 1, 1, 2, 2]


def test_a_dual_encoder_s_row_is_a_positive_with_one_of_its_negatives():
    rows = epoch(Instances(LISTS, 4, "row", resample=False))
    assert len(rows) == 3 * 3
    joined = {positive: sorted(n for p, n in rows if p == positive) for positive in (10, 11, 12)}
    whole = {
        visit[0]: sorted(visit[1:])
        for visit in epoch(Instances(LISTS, 4, "positive", resample=False))
    }
    assert joined == whole


def test_a_cross_encoder_s_row_is_a_single_pair():
    instances = Instances(LISTS, 4, "row", resample=False, pairs=True)
    assert len(instances) == 3 * (1 + 3)
    assert sorted(passage for [passage] in epoch(instances)) == sorted(LISTS.passages.tolist())
    batch = next(iter_batches(instances, 12, seed=5, visits=12))
    assert batch.passages.shape == (12, 2)
    assert batch.mask.sum(1).tolist() == [1] * 12
    # a positive stands first, a negative second
    assert set(batch.passages[batch.mask[:, 0], 0]) == {10, 11, 12}


def test_the_loss_of_rows_is_the_mean_binary_cross_entropy_of_the_pairs():
    learner = objective("cross", dtype=torch.float64, loss="pointwise", instance="row")
    passages = np.array([[2, -1], [-1, 5], [-1, 8]])
    scores = learner.scores(Batch(np.array([0, 0, 1]), passages), np.empty(0, np.int64))["cross"]
    logits = scores[torch.from_numpy(passages >= 0)]
    expected = binary_cross_entropy_with_logits(
        logits, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    )
    values = learner.backward(Batch(np.array([0, 0, 1]), passages), Seeds((1, 0)))
    assert values["loss"] == approx(expected.item())


def test_queries_are_visited_as_before_and_starting_in_the_middle_changes_nothing():
    for instances in (
        Instances(LISTS, 4),
        Instances(LISTS, 4, "positive"),
        Instances(LISTS, 4, "row", pairs=True),
    ):
        whole = list(iter_batches(instances, 2, seed=3, visits=24))
        rest = list(iter_batches(instances, 2, seed=3, visits=24, first=5))
        assert [batch.passages.tolist() for batch in whole[5:]] == [
            batch.passages.tolist() for batch in rest
        ]


def test_epochs_of_positives_are_the_nearest_number_of_full_batches():
    assert count_visits(222_395, 256, 10, None, "positive") == 8_687 * 256  # 8,687.3
    assert count_visits(222_395 * 5, 64, 3, None, "row") == 52_124 * 64  # 52,123.8
    # of queries every list, in 20,956 batches
    assert count_visits(502_939 * 2, 96, 2, None) == 502_939 * 4
    assert count_visits(3, 256, 1, None, "positive") == 256


def test_a_share_of_an_epoch_is_not_one_query_more_by_rounding():
    assert 0.07 * 100 > 7
    assert count_visits(100, 7, 0.07, None) == 7
    assert count_visits(100, 7, 0.071, None) == 8


@pytest.mark.parametrize(
    ("name", "train", "line"),
    [
        (
            "cross",
            {"instance": "row", "loss": "listwise"},
            "row, a single pair: it takes loss: pointwise",
        ),
        ("cross", {"instance": "row", "in_batch": True}, "neither in_batch nor distil"),
        (
            "dual",
            {"instance": "positive", "positives": 2, "list_size": 4},
            "an instance of a positive has one",
        ),
        ("dual", {"resample": False}, "instance is query; set candidates.negatives instead"),
    ],
)
def test_what_does_not_fit_is_one_line(name, train, line):
    with pytest.raises(ValidationError, match=line):
        TRAINING[name].model_validate(train)
