"""Losses over pairs and orders: hinge, RankNet, LambdaRank, ApproxNDCG, ListMLE."""

import math

import pytest
import torch
from pytest import approx

from tandem.contrib.losses.orderings import approx_ndcg, listmle
from tandem.contrib.losses.pairwise import (
    hinge,
    hinge_distillation,
    lambda_mrr,
    lambdarank,
    lambdarank_distillation,
    ranknet,
    ranknet_distillation,
)
from tandem.training.losses.listwise import listwise

LN3 = math.log(3)
SECOND = 1 / math.log2(3)  # the discount of rank 2


def of(loss, *lists, **options):
    """A loss of one query's list, without padding."""
    rows = [torch.tensor([row], dtype=torch.float64) for row in lists]
    return loss(*rows, torch.ones_like(rows[0], dtype=torch.bool), **options).item()


def test_hinge_by_hand():
    # leads 1.5 and 0.2: 1 - 1.5 is paid for with 0, 1 - 0.2 with 0.8; with a margin of 2: 0.5 and 1.8
    assert of(hinge, [2.0, 0.5, 1.8]) == approx(0.8 / 2)
    assert of(hinge, [2.0, 0.5, 1.8], margin=2.0) == approx((0.5 + 1.8) / 2)


def test_hinge_by_the_teachers_order_by_hand():
    # pairs (first, third) and (second, third), the tie is none: leads -3 and -2, shortfalls 4 and 3
    assert of(hinge_distillation, [0.0, 1.0, 3.0], [5.0, 5.0, 1.0]) == approx((4 + 3) / 2)


def test_ranknet_by_hand():
    # leads ln 3 and 0: ln(1 + 1/3) and ln 2
    assert of(ranknet, [LN3, 0.0, LN3]) == approx((math.log(4 / 3) + math.log(2)) / 2)


def test_ranknet_by_the_teachers_order_by_hand():
    # pairs (2nd, 1st), (3rd, 1st), (3rd, 2nd): leads ln 3, 0 and -ln 3: ln 4/3, ln 2 and ln 4
    value = of(ranknet_distillation, [0.0, LN3, 0.0], [1.0, 2.0, 3.0])
    assert value == approx((math.log(4 / 3) + math.log(2) + math.log(4)) / 3)


def test_lambdarank_by_hand():
    # the positive has rank 2; swapped with rank 1 its discount 1/log2 3 becomes 1, with rank 3 it becomes 1/2
    expected = (1 - SECOND) * math.log(4) + (SECOND - 1 / 2) * math.log(1 + math.exp(-1))
    assert of(lambdarank, [0.0, LN3, -1.0]) == approx(expected)


def test_lambdarank_by_the_teachers_order_by_hand():
    # gains 2^(1/1) - 1 = 1 and 2^(1/2) - 1; the better passage has rank 2; ln(1 + e^ln3) = ln 4
    gain = math.sqrt(2) - 1
    expected = (1 - gain) * (1 - SECOND) / (1 + gain * SECOND) * math.log(4)
    assert of(lambdarank_distillation, [0.0, LN3], [2.0, 1.0]) == approx(expected)
    # a tie shares rank 1: gains 1, 1 and 2^(1/3) - 1; ranks 1, 2, 3, leads 2 and 1
    gain, ideal = 2 ** (1 / 3) - 1, 1 + SECOND + (2 ** (1 / 3) - 1) / 2
    expected = (1 - 1 / 2) * math.log(1 + math.exp(-2)) + (SECOND - 1 / 2) * math.log(
        1 + math.exp(-1)
    )
    assert of(lambdarank_distillation, [2.0, 1.0, 0.0], [7.0, 7.0, 1.0]) == approx(
        (1 - gain) / ideal * expected
    )


def test_lambda_mrr_by_the_teachers_order_by_hand():
    # ranks 2, 1 and 3, the teacher's order 1st, then the others, which are not a pair: leads -ln 3 and ln 3
    expected = (1 - 1 / 2) * math.log(4) + (1 / 2 - 1 / 3) * math.log(4 / 3)
    assert of(lambda_mrr, [0.0, LN3, -LN3], [1.0, 0.0, 0.0]) == approx(expected / 2)


def test_approx_ndcg_by_hand():
    # one tenth of ln 3 above and below the positive: σ(ln 3) + σ(-ln 3) = 3/4 + 1/4, so its rank is 2
    assert of(approx_ndcg, [0.0, LN3 / 10, -LN3 / 10]) == approx(1 - SECOND)


def test_approx_ndcg_of_distant_scores_is_one_minus_ndcg():
    assert of(approx_ndcg, [5.0, 9.0, 1.0, 0.0]) == approx(1 - SECOND)


def test_lambdarank_of_two_grades_is_the_supervised_one_up_to_the_gains():
    # two passages: gains 1 and √2 - 1 over their ideal DCG, where the supervised loss has 1 and 0 over 1
    factor = (2 - math.sqrt(2)) / (1 + (math.sqrt(2) - 1) * SECOND)
    scores = [0.3, 0.9]
    assert of(lambdarank_distillation, scores, [1.0, 0.0]) == approx(
        factor * of(lambdarank, scores)
    )


def test_listmle_by_hand():
    # order 2nd, 1st, 3rd: 3/(2 + 3 + 1) · 2/(2 + 1) · 1 = 1/3
    assert of(listmle, [math.log(2), LN3, 0.0], [2.0, 3.0, 1.0]) == approx(math.log(3))


def test_listmle_keeps_the_lists_order_of_ties():
    # 2/(2 + 3 + 1) · 3/(3 + 1) · 1 = 1/4
    assert of(listmle, [math.log(2), LN3, 0.0], [1.0, 1.0, 1.0]) == approx(math.log(4))


def test_listmle_of_two_passages_is_listwise():
    assert of(listmle, [0.4, 1.3], [1.0, 0.0]) == approx(of(listwise, [0.4, 1.3]))


@pytest.mark.parametrize(
    "loss", [hinge_distillation, ranknet_distillation, lambdarank_distillation]
)
def test_a_teacher_without_an_order_teaches_nothing(loss):
    assert of(loss, [0.4, 1.3, -2.0], [1.0, 1.0, 1.0]) == 0


@pytest.mark.parametrize("loss", [hinge, ranknet, lambdarank, approx_ndcg])
def test_a_list_without_negatives_teaches_nothing(loss):
    assert of(loss, [0.4]) == 0


@pytest.mark.parametrize("loss", [hinge, ranknet, lambdarank, approx_ndcg, listwise])
def test_a_step_raises_the_positive_and_lowers_each_negative(loss):
    scores = torch.tensor([[0.1, 0.3, -0.2, 0.2]], requires_grad=True)
    loss(scores, torch.ones_like(scores, dtype=torch.bool)).backward()
    assert scores.grad[0, 0] < 0
    assert (scores.grad[0, 1:] > 0).all()
    assert scores.grad.sum().item() == approx(0, abs=1e-7)


def test_lambdarank_pushes_hardest_where_ndcg_changes_most():
    # scores nearly equal, so RankNet's pushes are; the positive has rank 4, and rank 1 is the swap that gains most
    scores = torch.tensor([[0.0, 3e-3, 2e-3, 1e-3, -1e-3]], dtype=torch.float64, requires_grad=True)
    lambdarank(scores, torch.ones_like(scores, dtype=torch.bool)).backward()
    pushed = scores.grad[0, 1:]
    assert (pushed[0] > pushed[1] > pushed[2] > pushed[3] > 0).item()
    # rank 4 against 3 gains 1/2 - 1/log2 5 = 0.069, against 5 it loses 1/log2 5 - 1/log2 6 = 0.044; times σ(≈0) = 1/2
    assert pushed[2:].tolist() == approx([0.5 * 0.06932, 0.5 * 0.04383], rel=1e-2)
