"""Kendall's τ-b and Pearson's r by hand."""

import math

import pytest

from tandem.contrib.validation.comparison import measure_kendall, measure_pearson


def test_tau_of_four_values_by_hand():
    # pairs of y: (1,3) + (1,2) + (1,4) + (3,2) - (3,4) + (2,4) +: five in order, one not
    assert measure_kendall([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx((5 - 1) / 6)
    assert measure_kendall([1, 2, 3, 4], [4, 3, 2, 1]) == -1


def test_tau_with_ties_by_hand():
    # x ties one pair of six, y none; of the five others four agree and one does not
    assert measure_kendall([1, 1, 2, 3], [1, 2, 4, 3]) == pytest.approx((4 - 1) / math.sqrt(5 * 6))
    assert measure_kendall([1, 1, 1], [1, 2, 3]) is None
    assert measure_kendall([1], [1]) is None


def test_pearson_by_hand():
    # deviations (-1, 0, 1) and (-1, -1, 2): 3 / √(2 · 6)
    assert measure_pearson([1, 2, 3], [0, 0, 3]) == pytest.approx(3 / math.sqrt(12))
    assert measure_pearson([1, 2], [5, 5]) is None
