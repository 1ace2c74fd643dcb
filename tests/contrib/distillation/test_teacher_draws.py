"""Which passages a visit draws by a teacher's scores: evenly by margins, or by its ranks."""

from functools import partial

import numpy as np
import pytest
from pydantic import ValidationError
from pytest import approx

from tandem.config.models import DualModel
from tandem.config.training import TEACHING, DualTrain, RankGroup
from tandem.contrib.distillation.teacher_draws import (
    draw_by_margin,
    draw_by_rank,
    label_ranks,
    order_by_margin,
)
from tandem.training.instances import Instances, iter_batches
from tandem.training.lists import Lists


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
        instances = Instances(lists, 2, draw=bins and partial(draw_by_margin, bins=bins))
        return np.mean([instances.visit(0, seed=3, epoch=at)[1][1] <= 10 for at in range(1000)])

    assert hard(10) == approx(0.5, abs=0.05)
    assert hard(None) == approx(0.1, abs=0.03)


def test_passages_without_a_score_leave_the_ranges_as_they_are():
    # Two negatives at either end, ten that the teacher has not scored: each end still has half of the draws
    scores = np.r_[10.0, 9.0, 0.0, np.full(10, np.nan)].astype(np.float32)
    lists = Lists(np.array([7]), np.array([0, 13]), np.array([1]), np.arange(13), scores)
    instances = Instances(lists, 2, draw=partial(draw_by_margin, bins=2))
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
BY_RANK = {"draw": partial(draw_by_rank, groups=GROUPS), "labels": label_ranks(GROUPS)}


def test_a_list_by_its_ranks_under_the_teacher_by_hand():
    # The positives stand first; 7, 5, 4, 3, 2 and 1 are the teacher's scores of the others, one has none
    scores = np.array([9, 9, 1, 7, 3, np.nan, 5, 4, 2], np.float32)
    lists = Lists(np.array([7]), np.array([0, 9]), np.array([2]), np.arange(10, 19), scores)
    instances, seen = Instances(lists, 6, **BY_RANK), [set() for _ in range(6)]
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
    (batch,) = iter_batches(Instances(lists, 6, **BY_RANK), 1, seed=3, visits=1)
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


def test_groups_beyond_the_end_of_the_lists_are_refused():
    train = {"groups": [group.model_dump() for group in GROUPS], "list_size": 6, "distil": TEACHER}
    model = {"objective": "dual", "candidates": {"from": "bm25", "depth": 8}, "train": train}
    assert DualModel.model_validate(model).train.groups == GROUPS
    for candidates in (
        {"depth": 7},
        {"depth": 7, "negatives": 9},
        {"negatives": 7},
        {"first_rank": 2},
    ):
        model["candidates"] = {"from": "bm25", "depth": 8, **candidates}
        with pytest.raises(
            ValidationError, match="groups end at rank 9, but lists have at most 8 passages"
        ):
            DualModel.model_validate(model)


def test_groups_may_end_where_lists_are_filled_up_to():
    denoise = {"by": "judge", "backfill": {"first_rank": 8, "depth": 20}}
    candidates = {"from": "bm25", "depth": 7, "negatives": 8, "denoise": denoise}
    train = {"groups": [group.model_dump() for group in GROUPS], "list_size": 6, "distil": TEACHER}
    DualModel.model_validate({"objective": "dual", "candidates": candidates, "train": train})


@pytest.mark.parametrize("train", [{"distil": TEACHER}, {"margin_bins": 4}])
def test_without_the_package_its_keys_are_refused(train, monkeypatch):
    monkeypatch.setattr(TEACHING, "_entries", {})
    (key,) = train
    with pytest.raises(ValidationError, match=f"{key}: nothing learns by it"):
        DualTrain.model_validate(train)
