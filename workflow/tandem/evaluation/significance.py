"""Test whether two systems differ by more than chance, query by query, and compute how certain a mean is.

All work on matrices: rows are queries, columns are comparisons (or systems) that share them. Signs and resamples are
drawn once for all columns, so that a column's result does not depend on its neighbours.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import fdtri, stdtr, stdtrit

from tandem.data.columns import Floats64

# number of queries that differ: 2^14 sign patterns are fewer than the samples drawn otherwise
MOST_ENUMERATED = 14
CELLS_PER_BLOCK = 4_000_000  # of a block of draws: 32 MB of float64
_SIGN_PATTERNS = 100_000
_RESAMPLES = 10_000
_SEED = 13
_TOLERANCE = 1e-9  # relative: sums that are equal on paper differ in their last bits
_HALVINGS = 60  # of the interval that p lies in: its width is below 1e-18 then


def run_randomisation_test(
    differences: Floats64, samples: int = _SIGN_PATTERNS, seed: int = _SEED
) -> Floats64:
    """Return the two-sided p of the paired randomisation (sign-flip) test, a column at a time.

    Under the null hypothesis a query's difference d_q is as likely as its negative, so

        p = P(|sum_q s_q d_q| >= |sum_q d_q|),   s_q = +1 or -1, independent and fair.

    Exact by all 2^n sign patterns where at most 14 queries differ (a difference of 0 changes no sum); otherwise
    estimated from `samples` patterns as (count + 1) / (samples + 1), which counts the observed one and is never 0.
    Sources: Fisher, The Design of Experiments, 1935, §21; Smucker, Allan and Carterette, A Comparison of Statistical
    Significance Tests for Information Retrieval Evaluation, CIKM 2007; the added one: Phipson and Smyth, 2010.

    Args:
        differences: system minus baseline, shape (queries, comparisons).
        samples: patterns drawn where enumeration is too long, by `seed`.
    Returns:
        p per column, shape (comparisons,).
    """
    observed = np.abs(differences.sum(axis=0))
    threshold = observed - _TOLERANCE * np.abs(differences).sum(axis=0)
    changed = (differences != 0).sum(axis=0)
    is_enumerated = changed <= MOST_ENUMERATED

    p = np.ones(differences.shape[1])
    for column in np.flatnonzero(is_enumerated):
        p[column] = _enumerate_signs(differences[:, column], threshold[column])
    sampled = np.flatnonzero(~is_enumerated)
    if sampled.size:
        p[sampled] = _sample_signs(differences[:, sampled], threshold[sampled], samples, seed)
    return p


def _enumerate_signs(differences: Floats64, threshold: float) -> float:
    """Return the share of all sign patterns of one column whose sum reaches the threshold."""
    nonzero = differences[differences != 0]
    # Pattern i gives difference j the sign of bit j of i.
    patterns = np.arange(2 ** len(nonzero))[:, None]
    bits = patterns >> np.arange(len(nonzero)) & 1
    signs = (2 * bits - 1).astype(np.float64)
    return float((np.abs(signs @ nonzero) >= threshold).mean())


def _sample_signs(differences: Floats64, threshold: Floats64, samples: int, seed: int) -> Floats64:
    """Return the estimated share of sign patterns, per column, whose sum reaches the threshold."""
    queries, columns = differences.shape
    counts = np.zeros(columns)
    generator = np.random.default_rng(seed)
    for rows in _iterate_blocks(samples, queries):
        bits = generator.integers(0, 2, (rows, queries), dtype=np.int8)
        signs = (2 * bits - 1).astype(np.float64)
        sums = np.abs(signs @ differences)
        counts += (sums >= threshold).sum(axis=0)
    p: Floats64 = (counts + 1) / (samples + 1)
    return p


def run_seeded_test(differences: Floats64, samples: int = _SIGN_PATTERNS) -> Floats64:
    """Return the two-sided p of differences measured with several seeds: chance of the queries and of the training.

    The mean over seeds of one system may lie above another's because of the queries that were drawn, or because of the
    seeds. Both are random factors, crossed: d_sq = mu + a_s + b_q + e_sq. With the mean squares of seeds, queries and
    the rest,

        t = mean / sqrt((E + MS_q) / (S Q)),   E = max(0, MS_s - m MS_e),

    where m MS_e is the median that MS_s has if seeds do not matter. E has S - 1 degrees of freedom and MS_q has
    Q - 1, so p is such that t is the mean of their quantiles, weighted by their parts of the variance:

        t = (E t_{S-1, 1-p/2} + MS_q t_{Q-1, 1-p/2}) / (E + MS_q).

    If seeds dominate, this is the t test over seeds; if their mean square is no larger than the rest explains, it is
    the t test over queries. With two seeds, MS_s is one squared difference, which is often small by chance: E is then
    all of MS_s. The variance is at least that of the seeds only.

    The means over seeds also go through `run_randomisation_test`, which assumes no distribution, and p is the larger of
    the two. If all seeds have the same differences, p is that of the randomisation test only.
    Sources: Clark, The Language-as-Fixed-Effect Fallacy, 1973 (quasi-F); Judd, Westfall and Kenny, 2012, for t. The
    weighted quantiles: Cochran and Cox, Experimental Designs, 1950. Satterthwaite's degrees of freedom, estimated by
    MS_s itself, are too many wherever MS_s is small by chance: p < 0.05 came out in .11 of experiments with two seeds
    that differed more than queries and had no effect.

    Args:
        differences: system minus baseline, shape (seeds, queries, comparisons).
        samples: as in `run_randomisation_test`.
    Returns:
        p per comparison, shape (comparisons,).
    """
    seeds, queries, _ = differences.shape
    p = run_randomisation_test(differences.mean(axis=0), samples)
    differs_by_seed = (differences != differences[0]).any(axis=(0, 1))
    if queries > 1 and differs_by_seed.any():
        error, share = _cross_factors(differences[..., differs_by_seed])
        # Without any variance of seeds' and queries' means there is no t, only the randomisation test.
        has_error = error > 0
        tested = np.flatnonzero(differs_by_seed)[has_error]
        mean = differences[..., tested].mean(axis=(0, 1))
        t = np.abs(mean) / error[has_error]
        p[tested] = np.maximum(p[tested], _solve_p(t, share[has_error], seeds, queries))
    return p


def _cross_factors(differences: Floats64) -> tuple[Floats64, Floats64]:
    """Return the standard error of the mean over seeds and queries, and the seeds' part of its square, per column."""
    seeds, queries, _ = differences.shape
    mean = differences.mean(axis=(0, 1))
    of_seeds = differences.mean(axis=1)
    of_queries = differences.mean(axis=0)
    rest = differences - of_seeds[:, None] - of_queries + mean

    ms_seeds = queries * ((of_seeds - mean) ** 2).sum(axis=0) / (seeds - 1)
    ms_queries = seeds * ((of_queries - mean) ** 2).sum(axis=0) / (queries - 1)
    freedom = (seeds - 1) * (queries - 1)
    ms_rest = (rest**2).sum(axis=(0, 1)) / freedom

    by_chance = fdtri(seeds - 1, freedom, 0.5) * ms_rest if seeds > 2 else 0.0
    excess = np.maximum(ms_seeds - by_chance, 0.0)
    both = excess + ms_queries
    share = np.divide(excess, both, out=np.zeros_like(both), where=both > 0)
    error = np.sqrt(np.maximum(both, ms_seeds) / (seeds * queries))
    return error, share


def _average_quantiles(
    probability: Floats64 | float, share: Floats64, seeds: int, queries: int
) -> Floats64:
    """Return the mean of Student's quantiles for seeds and queries, weighted by their shares of the variance."""
    of_seeds = stdtrit(seeds - 1, probability)
    of_queries = stdtrit(queries - 1, probability)
    quantile: Floats64 = share * of_seeds + (1 - share) * of_queries
    return quantile


def _solve_p(t: Floats64, share: Floats64, seeds: int, queries: int) -> Floats64:
    """Return the two-sided p at which the weighted quantile is `t`, by halving the interval between both tests' p."""
    of_seeds = 2 * stdtr(seeds - 1, -t)
    of_queries = 2 * stdtr(queries - 1, -t)
    low: Floats64 = np.minimum(of_seeds, of_queries)
    high: Floats64 = np.maximum(of_seeds, of_queries)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # lower tails: tiny p keep their digits
        above = _average_quantiles(middle / 2, share, seeds, queries) > -t
        low = np.where(above, low, middle)
        high = np.where(above, middle, high)
    return high


def compute_margins(
    differences: Floats64, low: Floats64, high: Floats64, confidence: float = 0.95
) -> Floats64:
    """Return half the width of an interval of a mean difference: what the test may have missed.

    It is that of the bootstrap over queries of the means over seeds. If seeds differ, it is at least that of
    `run_seeded_test`, with queries and seeds as random factors.

    Args:
        differences: system minus baseline, shape (seeds, queries, comparisons).
        low, high: `bootstrap_mean` of the differences' means over seeds, with the same confidence.
    Returns:
        Shape (comparisons,), in the differences' unit.
    """
    seeds, queries, _ = differences.shape
    half: Floats64 = (high - low) / 2
    differs_by_seed = (differences != differences[0]).any(axis=(0, 1))
    if queries > 1 and differs_by_seed.any():
        error, share = _cross_factors(differences[..., differs_by_seed])
        quantile = _average_quantiles((1 + confidence) / 2, share, seeds, queries)
        half[differs_by_seed] = np.maximum(half[differs_by_seed], error * quantile)
    return half


def _iterate_blocks(total: int, width: int) -> Iterator[int]:
    """Yield numbers of rows that add up to the total: blocks of at most `CELLS_PER_BLOCK` cells, or of one row."""
    size = max(1, CELLS_PER_BLOCK // max(width, 1))
    for start in range(0, total, size):
        yield min(size, total - start)


def correct_by_holm(p: Floats64) -> Floats64:
    """Correct each p for being one of several comparisons, so that the chance of any false claim stays at the level.

    Sorted ascending, p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)), i and j from 1 to m.
    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statistics 6(2), 1979.

    Args:
        p: shape (comparisons,); any order, which the result keeps.

    >>> correct_by_holm(np.array([0.25, 0.125])).tolist()
    [0.25, 0.25]
    """
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    steps = np.minimum(1.0, factors * p[order])
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(steps)
    return corrected


def bootstrap_mean(
    values: Floats64, confidence: float = 0.95, resamples: int = _RESAMPLES, seed: int = _SEED
) -> tuple[Floats64, Floats64]:
    """Return the percentile bootstrap interval of the mean over queries, a column at a time.

    Queries are drawn n of n with replacement; the interval runs from the (1 - confidence)/2 to the
    (1 + confidence)/2 quantile of the resamples' means. Source: Efron, Annals of Statistics 7(1), 1979; the
    percentile form: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13.

    Args:
        values: of a measure, shape (queries, columns).
    Returns:
        (low, high), each of shape (columns,).
    """
    queries = len(values)
    generator = np.random.default_rng(seed)
    means = []
    for rows in _iterate_blocks(resamples, queries):
        draws = generator.integers(0, queries, (rows, queries))
        # Count how often each query was drawn: the mean is then one product for all columns. Each resample counts in
        # `queries` cells of its own.
        cells = draws + queries * np.arange(rows)[:, None]
        counts = np.bincount(cells.ravel(), minlength=rows * queries).reshape(rows, queries)
        means.append(counts.astype(np.float64) @ values / queries)
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return low, high
