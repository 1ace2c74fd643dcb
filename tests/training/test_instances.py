"""What an epoch visits: each query, each positive, or each row of a released file; which negatives stay."""

from collections import Counter

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from pytest import approx
from tiny_training import TRAINING, objective
from torch.nn.functional import binary_cross_entropy_with_logits

from tandem.config.models import DualModel
from tandem.config.training import DualTrain, RankGroup
from tandem.training.forward import Seeds
from tandem.training.instances import (
    Instances,
    count_visits,
    iter_batches,
    label_ranks,
    order_by_margin,
    order_by_topic,
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


def test_balanced_margins_by_hand():
    # margins from 0 to 10 in two parts, below 5 and from 5 on; the second has its turn first; without a score: last
    margins = np.array([0.0, 10.0, 1.0, 9.9, 0.5, 5.0, np.nan], np.float32)
    assert order_by_margin(margins, 2, np.array([1, 0])).tolist() == [1, 0, 3, 2, 5, 4, 6]
    assert order_by_margin(margins[:1], 2, np.array([0, 1])).tolist() == [0]
    assert order_by_margin(np.full(2, np.nan, np.float32), 2, np.array([0, 1])).tolist() == [0, 1]


def test_rare_margins_are_drawn_as_often_as_common_ones():
    # Ten hard negatives beside 90 easy ones: two of ten ranges are not empty, each has half of the draws
    scores = np.r_[10.0, np.linspace(9.0, 9.5, 10), np.linspace(0.0, 0.5, 90)].astype(np.float32)
    lists = Lists(np.array([7]), np.array([0, 101]), np.array([1]), np.arange(101), scores)

    def hard(bins):
        instances = Instances(lists, 2, bins=bins)
        return np.mean([instances.visit(0, seed=3, epoch=at)[1][1] <= 10 for at in range(1000)])

    assert hard(10) == approx(0.5, abs=0.05)
    assert hard(None) == approx(0.1, abs=0.03)


def test_passages_without_a_score_leave_the_ranges_as_they_are():
    # Two negatives at either end, ten that the teacher has not scored: each end still has half of the draws
    scores = np.r_[10.0, 9.0, 0.0, np.full(10, np.nan)].astype(np.float32)
    lists = Lists(np.array([7]), np.array([0, 13]), np.array([1]), np.arange(13), scores)
    instances = Instances(lists, 2, bins=2)
    drawn = [instances.visit(0, seed=3, epoch=at)[1][1] for at in range(1000)]
    assert {*drawn} == {1, 2}
    assert np.mean(np.array(drawn) == 1) == approx(0.5, abs=0.05)
    # By hand: the last of these is of the low part, whose turn is first, whatever stands before it.
    margins = np.array([np.nan, np.nan, 8.0, np.nan, 0.0], np.float32)
    assert order_by_margin(margins, 2, np.array([0, 1])).tolist() == [4, 2, 0, 1, 3]


def test_bins_need_a_teacher_and_whole_lists():
    distil = {"from": "ce", "loss": "margin_mse"}
    assert DualTrain.model_validate({"margin_bins": 10, "distil": distil}).margin_bins == 10
    for train in ({}, {"distil": distil, "instance": "row"}):
        with pytest.raises(ValidationError, match="margin_bins is 10, which needs a teacher"):
            DualTrain.model_validate({"margin_bins": 10, **train})
    assert not {"margin_bins", "topics"} & set(DualTrain().model_dump())


TEACHER = {"from": "ce", "loss": "lambda_mrr"}
GROUPS = tuple(
    RankGroup(last_rank=rank, passages=count) for rank, count in ((2, 2), (5, 2), (9, 2))
)


def test_a_list_by_its_ranks_under_the_teacher_by_hand():
    # The positives stand first; 7, 5, 4, 3, 2 and 1 are the teacher's scores of the others, one has none
    scores = np.array([9, 9, 1, 7, 3, np.nan, 5, 4, 2], np.float32)
    lists = Lists(np.array([7]), np.array([0, 9]), np.array([2]), np.arange(10, 19), scores)
    instances, seen = Instances(lists, 6, groups=GROUPS), [set() for _ in range(6)]
    for batch in iter_batches(instances, 1, seed=3, visits=200):
        assert batch.teacher.tolist() == [[1.0, 0.5, 0.0, 0.0, -1.0, -1.0]]
        for ranks, passage in zip(seen, batch.passages[0].tolist(), strict=True):
            ranks.add(passage)
    # Rank 1 is one of the positives, rank 2 the teacher's best; two of the ranks 3 to 5; 6 and 7 are all there are
    assert seen == [{10, 11}, {13}, {16, 17}, {17, 14}, {18}, {12}]


def test_what_a_list_lacks_is_left_empty_in_its_group():
    lists = Lists(
        np.array([7]),
        np.array([0, 4]),
        np.array([1]),
        np.arange(10, 14),
        np.array([0, 1, 3, 2], np.float32),
    )
    (batch,) = iter_batches(Instances(lists, 6, groups=GROUPS), 1, seed=3, visits=1)
    assert batch.passages.tolist() == [[10, 12, 13, 11, -1, -1]]
    assert np.isnan(batch.teacher[0, 4:]).all()
    assert label_ranks(GROUPS[:1]).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("train", "line"),
    [
        ({"distil": None}, "groups need a teacher"),
        (
            {"distil": {"from": "ce"}},
            "groups give an order and no scores, but distil.loss is paper; allowed: hinge, ",
        ),
        ({"margin_bins": 2}, "groups need a teacher .*, and no margin_bins"),
        ({"sizes": "data", "budget_minutes": 5}, "groups need a teacher .*, sizes: given"),
        ({"list_size": 4}, "groups have 6 passages, but list_size is 4"),
        (
            {"groups": [{"last_rank": 3, "passages": 2}]},
            r"groups draw \[2\] of \[3\] ranks; of the first all",
        ),
        (
            {"groups": [{"last_rank": 2, "passages": 2}, {"last_rank": 5, "passages": 4}]},
            r"draw \[2, 4\] of \[2, 3\]",
        ),
    ],
)
def test_groups_that_do_not_fit_are_refused(train, line):
    fits = {"groups": [group.model_dump() for group in GROUPS], "list_size": 6, "distil": TEACHER}
    assert DualTrain.model_validate(fits).groups == GROUPS
    with pytest.raises(ValidationError, match=line):
        DualTrain.model_validate(fits | train)


def test_an_epoch_by_topic_by_hand():
    # Topic 1 has the instances 0, 2, 4 and 6, topic 5 has 1, 3 and 5: a full batch of each, 6 and 5 are left
    order, topics = np.array([0, 1, 2, 3, 4, 5, 6]), np.array([1, 5, 1, 5, 1, 5, 1])
    visited = order_by_topic(order, topics, 3, 0, np.random.default_rng(0)).tolist()
    assert sorted([visited[:3], visited[3:6]]) == [[0, 2, 4], [1, 3, 5]]
    assert visited[6:] == [6]
    # Two complete the batch of the epoch before: 6, and one more of a full batch, which is broken up
    visited = order_by_topic(order, topics, 3, 2, np.random.default_rng(0)).tolist()
    assert visited[2:5] in ([0, 2, 4], [1, 3, 5])
    assert sorted(visited) == list(range(7))


def test_batches_of_several_epochs_are_of_one_topic_each():
    queries = np.arange(50)
    lists = Lists(queries, np.arange(0, 101, 2), np.ones(50, int), np.arange(100))
    # five topics of ten, batches of four: two whole ones and two queries left of each
    topics = queries // 10
    seen = list(iter_batches(Instances(lists, 2, topics=topics), 4, seed=1, visits=150))
    assert (
        sorted(np.concatenate([batch.queries for batch in seen]).tolist())
        == np.repeat(queries, 3).tolist()
    )
    alike = [len(set(topics[batch.queries])) == 1 for batch in seen]
    assert sum(alike) >= 3 * 9
    again = list(iter_batches(Instances(lists, 2, topics=topics), 4, seed=1, visits=150, first=20))
    assert [batch.queries.tolist() for batch in again] == [
        batch.queries.tolist() for batch in seen[20:]
    ]
    plain = list(iter_batches(Instances(lists, 2), 4, seed=1, visits=150))
    assert sum(len(set(topics[batch.queries])) == 1 for batch in plain) < 5


def test_groups_beyond_the_end_of_the_lists_are_refused():
    train = {"groups": [group.model_dump() for group in GROUPS], "list_size": 6, "distil": TEACHER}
    model = {"objective": "dual", "candidates": {"from": "bm25", "depth": 8}, "train": train}
    assert DualModel.model_validate(model).train.groups == GROUPS
    for candidates in ({"depth": 7}, {"negatives": 7}, {"first_rank": 2}):
        model["candidates"] = {"from": "bm25", "depth": 8, **candidates}
        with pytest.raises(
            ValidationError, match="groups end at rank 9, but lists have at most 8 passages"
        ):
            DualModel.model_validate(model)
