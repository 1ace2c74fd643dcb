import numpy as np
from pytest import approx

from tandem.config.training import Optimisation
from tandem.training.loop import rate
from tandem.training.validation import reciprocal_rank

LINEAR = Optimisation(lr=1.0, warmup=0.2, schedule="linear")


def test_rate_rises_over_the_warm_up_and_falls_to_zero():
    # ten steps, two of warm-up: 1/2, 2/2, then (10 - step) / 8
    assert [rate(s, 10, LINEAR) for s in range(10)] == approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )


def test_rate_without_warm_up_and_constant():
    assert [rate(s, 4, Optimisation(lr=2.0, warmup=0.0, schedule="constant")) for s in range(4)] == [2.0] * 4


def test_reciprocal_rank_by_hand():
    scores = np.array([[0.1, 0.9, 0.5], [1.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    relevant = np.array([[True, False, False], [False, True, True], [False, False, False]])
    mask = np.array([[True, True, True], [True, True, False], [True, True, True]])
    # rank 3; the tie goes to the earlier passage, and the padded hit does not count: rank 2; none
    assert reciprocal_rank(scores, relevant, mask) == approx((1 / 3 + 1 / 2 + 0) / 3)


def test_reciprocal_rank_stops_at_ten():
    scores, relevant = -np.arange(11.0)[None], np.zeros((1, 11), bool)
    relevant[0, 10] = True
    assert reciprocal_rank(scores, relevant, np.ones((1, 11), bool)) == 0.0
