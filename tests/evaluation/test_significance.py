"""Tests and intervals: by enumeration, by hand, against scipy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from tandem.evaluation import significance
from tandem.evaluation.significance import (
    bootstrap_mean,
    compute_margins,
    correct_by_holm,
    run_randomisation_test,
    run_seeded_test,
)


def column(*numbers):
    return np.asarray(numbers, float)[:, None]


def test_randomisation_of_five_queries_by_enumeration():
    differences = [0.5, 0.25, -0.1, 0.3, 0.0]
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=5)
    ]
    expected = sum(total >= 0.95 - 1e-9 for total in sums) / 32
    assert run_randomisation_test(column(*differences)) == pytest.approx([expected])


def test_randomisation_of_three_equal_differences_by_hand():
    # Of 8 sign patterns only +++ and --- reach |sum| = 0.3, although 0.1 + 0.1 + 0.1 is not 0.3 in binary.
    assert run_randomisation_test(column(0.1, 0.1, 0.1)) == pytest.approx([2 / 8])


def test_equal_systems_have_p_one():
    assert run_randomisation_test(np.zeros((50, 2))) == pytest.approx([1, 1])


def test_sampled_randomisation_agrees_with_the_exact_one(monkeypatch):
    differences = np.random.default_rng(0).normal(0.3, 1, (14, 3))
    exact = run_randomisation_test(differences)
    monkeypatch.setattr(significance, "MOST_ENUMERATED", 0)
    assert run_randomisation_test(differences) == pytest.approx(exact, abs=0.006)


def test_sampled_randomisation_is_seeded_and_never_zero():
    differences = np.ones((40, 1))
    assert run_randomisation_test(differences, samples=999) == pytest.approx([1 / 1000])
    noisy = np.random.default_rng(1).normal(0.2, 1, (40, 2))
    assert run_randomisation_test(noisy).tolist() == run_randomisation_test(noisy).tolist()
    assert (
        run_randomisation_test(noisy, seed=1).tolist()
        != run_randomisation_test(noisy, seed=2).tolist()
    )


def test_a_column_does_not_depend_on_its_neighbours():
    differences = np.random.default_rng(2).normal(0.2, 1, (60, 5))
    together = run_randomisation_test(differences)
    assert together.tolist() == [run_randomisation_test(differences[:, [at]])[0] for at in range(5)]


def test_blocks_change_no_sample_count(monkeypatch):
    monkeypatch.setattr(significance, "CELLS_PER_BLOCK", 70)
    assert list(significance._iterate_blocks(10, 20)) == [3, 3, 3, 1]
    assert run_randomisation_test(np.ones((20, 1)), samples=99) == pytest.approx([1 / 100])


def test_equal_seeds_are_the_randomisation_test():
    differences = np.random.default_rng(3).normal(0.2, 1, (60, 2))
    assert run_seeded_test(np.stack([differences] * 3)) == pytest.approx(
        run_randomisation_test(differences)
    )
    assert run_seeded_test(differences[None]) == pytest.approx(run_randomisation_test(differences))


def test_queries_and_seeds_by_hand():
    # Rows are seeds, of means 0, 1 and 5; each query adds 1, 2, …, 12, and nothing is left: MS_e = 0.
    differences = np.array([0.0, 1.0, 5.0])[:, None] + np.arange(1.0, 13)
    of_seeds, of_queries = 12 * (4 + 1 + 9) / 2, 3 * 143 / 11
    (p,) = run_seeded_test(differences[..., None])
    by_seeds, by_queries = stats.t.isf(p / 2, 2), stats.t.isf(p / 2, 11)
    weighted = (of_seeds * by_seeds + of_queries * by_queries) / (of_seeds + of_queries)
    assert weighted == pytest.approx(8.5 / np.sqrt((of_seeds + of_queries) / 36))


def test_what_the_rest_explains_of_the_seeds_does_not_count():
    # Of three seeds and two queries F(2, 2) has the median 1. MS_s = 2 (4 + 0 + 4) / 2 = 8, MS_q = 3 (1 + 1) = 6 and
    # MS_e = 4 / 2 = 2: E = 8 - 2 = MS_q, so the quantile is the mean of both, and the variance (6 + 6) / 6.
    seeds, queries = np.array([-2.0, 0.0, 2.0])[:, None], np.array([-1.0, 1.0])
    rest = np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    expected = np.sqrt(2) * (stats.t.ppf(0.975, 2) + stats.t.ppf(0.975, 1)) / 2
    assert half_widths((seeds + queries + rest)[..., None]) == pytest.approx([expected])


def test_seeds_that_disagree_are_no_evidence_however_many_queries():
    seeds = np.array([0.3, -0.1, 0.25])[:, None]
    differences = seeds + np.random.default_rng(4).normal(0, 0.5, (3, 2000))
    assert run_randomisation_test(differences.mean(axis=0)[:, None])[0] < 0.001
    assert run_seeded_test(differences[..., None])[0] > 0.2


@pytest.mark.filterwarnings("error")
def test_seeds_that_contradict_each_other_exactly_show_no_difference():
    opposite = np.array([1.0, -1.0])
    differences = np.stack([np.resize(opposite, 50), np.resize(-opposite, 50)])
    assert run_seeded_test(differences[..., None]) == pytest.approx([1])


def experiments(seeds, ratio, count, noise=1.0, queries=60):
    """Experiments without an effect; `ratio`: of the standard errors that seeds and queries give the mean."""
    generator = np.random.default_rng(5)
    of_seeds = generator.normal(0, ratio * np.sqrt(seeds / queries), (seeds, 1, count))
    of_queries = generator.normal(0, 1, (1, queries, count))
    return of_seeds + of_queries + generator.normal(0, noise, (seeds, queries, count))


@pytest.mark.parametrize(
    ("seeds", "ratio"), [(2, 2.5), (2, 3.0), (3, 1.0), (3, 2.5), (5, 0.5), (5, 2.5)]
)
def test_false_alarms_are_as_rare_as_the_level_says(seeds, ratio):
    p = run_seeded_test(experiments(seeds, ratio, 4000), samples=999)
    assert 0.035 <= (p < 0.05).mean() <= 0.065
    assert (p < 0.01).mean() <= 0.025


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_no_mixture_of_seeds_and_queries_has_many_more(seeds, ratio, noise):
    p = run_seeded_test(experiments(seeds, ratio, 4000, noise), samples=199)
    assert (p < 0.05).mean() < 0.075


def test_where_queries_dominate_three_seeds_show_what_queries_show():
    # An effect of four standard errors, and no variance of seeds: the test over queries alone finds .98 of such.
    differences = experiments(3, 0.0, 1000) + 4 * np.sqrt((1 + 1 / 3) / 60)
    of_queries = run_randomisation_test(differences.mean(axis=0), samples=999) < 0.05
    of_both = run_seeded_test(differences, samples=999) < 0.05
    assert of_queries.mean() > 0.97
    assert of_both.mean() > 0.9


def test_holm_by_hand():
    # Sorted: 0.01, 0.02, 0.03, 0.4 → times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.4.
    assert correct_by_holm(np.array([0.03, 0.01, 0.4, 0.02])) == pytest.approx(
        [0.06, 0.04, 0.4, 0.06]
    )
    assert correct_by_holm(np.array([0.6, 0.7])) == pytest.approx([1, 1])
    assert correct_by_holm(np.array([0.04])) == pytest.approx([0.04])
    assert correct_by_holm(np.array([])).size == 0


def test_bootstrap_of_a_constant_is_a_point():
    low, high = bootstrap_mean(np.full((20, 1), 0.25))
    assert (low[0], high[0]) == (pytest.approx(0.25), pytest.approx(0.25))


def test_bootstrap_of_two_queries_by_hand():
    # Means of resamples of (0, 1): 0, 1/2, 1 with probability 1/4, 1/2, 1/4.
    low, high = bootstrap_mean(column(0, 1))
    assert (low[0], high[0]) == (0, 1)
    low, high = bootstrap_mean(column(0, 1), confidence=0.4)
    assert (low[0], high[0]) == (0.5, 0.5)


def test_bootstrap_of_many_queries_is_near_the_normal_interval():
    values = np.random.default_rng(5).random((400, 2))
    low, high = bootstrap_mean(values)
    half = 1.96 * values.std(axis=0) / np.sqrt(400)
    assert low == pytest.approx(values.mean(axis=0) - half, abs=0.003)
    assert high == pytest.approx(values.mean(axis=0) + half, abs=0.003)


@pytest.mark.parametrize("cells", [1_000, 1_000_000])
def test_bootstrap_does_not_depend_on_the_blocks(monkeypatch, cells):
    values = np.random.default_rng(6).random((100, 2))
    expected = bootstrap_mean(values, resamples=500)
    monkeypatch.setattr(significance, "CELLS_PER_BLOCK", cells)
    assert np.allclose(expected, bootstrap_mean(values, resamples=500), atol=1e-12)


def half_widths(differences):
    return compute_margins(differences, *bootstrap_mean(differences.mean(axis=0)))


def test_margins_by_hand():
    # Differences 0 and 2: the means of resamples are 0, 1, 1, 2, so the interval is [0, 2].
    assert half_widths(column(0, 2)[None]) == pytest.approx([1])
    # Of seed 1 both queries differ by 1, of seed 2 by 3. MS of seeds: 2 (1 + 1) / 1 = 4, the others 0; the standard
    # error is sqrt(4 / 4), with one degree of freedom. The bootstrap over queries alone would say 0.
    by_seed = np.array([[[1.0], [1.0]], [[3.0], [3.0]]])
    assert half_widths(by_seed) == pytest.approx([stats.t.ppf(0.975, 1)])
    assert half_widths(by_seed[:1]) == pytest.approx([0])
