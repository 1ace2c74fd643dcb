"""Agreement of two judges by hand, and against scikit-learn."""

import numpy as np
import pytest
from pytest import approx

from tandem.contrib.audits.agreement import compute_kappa, measure_agreement


def test_by_hand():
    # 20 pairs said to be relevant by both, 15 by neither, 5 and 10 by one alone:
    # p_o = 35/50, p_e = (25 · 30 + 25 · 20) / 50² = 1/2, kappa = (.7 - .5) / (1 - .5)
    labels = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    result = measure_agreement(labels, 2)
    assert result.table == [[15, 10], [5, 20]]
    assert (result.pairs, result.percent, result.kappa) == (50, 70.0, 0.4)


def test_chance_is_0_and_the_opposite_is_negative():
    assert compute_kappa(np.full((2, 2), 7)) == 0
    assert compute_kappa(np.array([[0, 5], [5, 0]])) == -1
    assert compute_kappa(np.diag([3, 1, 4])) == 1


def test_where_people_gave_one_label_alone_kappa_says_nothing():
    assert measure_agreement([(1, 1), (1, 0), (1, 1)], 2).kappa is None
    empty = measure_agreement([], 2)
    assert (empty.pairs, empty.percent, empty.kappa) == (0, None, None)


def test_as_in_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(20):
        people = rng.integers(0, 4, 60)
        model = np.where(rng.random(60) < 0.5, people, rng.integers(0, 4, 60))
        table = metrics.confusion_matrix(people, model, labels=range(4))
        assert compute_kappa(table) == approx(metrics.cohen_kappa_score(people, model))
        assert measure_agreement(zip(people, model, strict=True), 4).table == table.tolist()
