"""Entropy, KL and tau-b with numbers worked out by hand."""

import math

import numpy as np
import pytest

from tandem.contrib.analysis.dynamics import (
    compare_ranks,
    compare_scores,
    compute_entropy,
    log_softmax,
    measure_divergence,
)

QUARTERS = np.array([0.0, math.log(3)])  # softmax (1/4, 3/4)
EVEN = np.zeros(2)  # (1/2, 1/2)


def test_softmax_of_large_scores_does_not_overflow():
    assert np.exp(log_softmax(QUARTERS + 1e4)) == pytest.approx([0.25, 0.75])


def test_entropy_by_hand():
    assert compute_entropy(log_softmax(EVEN)) == pytest.approx(math.log(2))
    assert compute_entropy(log_softmax(QUARTERS)) == pytest.approx(
        0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    )
    assert compute_entropy(log_softmax(np.array([0.0, 800.0]))) == 0.0


def test_divergence_by_hand_and_its_direction():
    expected = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert measure_divergence(log_softmax(QUARTERS), log_softmax(EVEN)) == pytest.approx(expected)
    back = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert measure_divergence(log_softmax(EVEN), log_softmax(QUARTERS)) == pytest.approx(back)
    assert expected != pytest.approx(back)


def test_tau_b_with_a_tie_by_hand():
    # of the six pairs of four passages one is tied in the second list, four agree, one does not:
    # (4 - 1) / sqrt(6 · 5)
    first, second = np.array([4.0, 3.0, 2.0, 1.0]), np.array([4.0, 2.0, 3.0, 2.0])
    assert compare_ranks(first, second) == pytest.approx(3 / math.sqrt(30))
    assert compare_ranks(first, -first) == pytest.approx(-1)
    assert compare_ranks(first, np.ones(4)) is None


def test_one_passage_has_nothing_to_compare():
    assert compare_scores(np.array([3.0]), np.array([-1.0])) == (0.0, 0.0, 0.0, None)
