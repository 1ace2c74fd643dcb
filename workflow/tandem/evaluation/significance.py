"""Whether two systems differ by more than chance, query by query, and how sure a mean is.

All work on matrices: rows are queries, columns are comparisons (or systems) that share them. Signs and resamples are
drawn once for all columns, so that a column's result does not depend on its neighbours.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import fdtri, stdtr, stdtrit

from tandem.data.columns import Floats64

MOST_ENUMERATED = 14  # queries that differ: 2^14 sign patterns are fewer than the samples drawn otherwise
_SIGN_PATTERNS = 100_000
_RESAMPLES = 10_000
_SEED = 13
CELLS_PER_BLOCK = 4_000_000  # of a block of draws: 32 MB of float64
_TOLERANCE = 1e-9  # relative: sums that are equal on paper differ in their last bits
_HALVINGS = 60  # of the interval that p lies in: its width is below 1e-18 then


def randomisation_test(differences: Floats64, samples: int = _SIGN_PATTERNS, seed: int = _SEED) -> Floats64:
    """Two-sided p of the paired randomisation (sign-flip) test, a column at a time.

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
    threshold = np.abs(differences.sum(axis=0)) - _TOLERANCE * np.abs(differences).sum(axis=0)
    few = (differences != 0).sum(axis=0) <= MOST_ENUMERATED
    p = np.ones(differences.shape[1])
    for column in np.flatnonzero(few):
        changed = differences[differences[:, column] != 0, column]
        bits = np.arange(2 ** len(changed))[:, None] >> np.arange(len(changed)) & 1
        p[column] = (np.abs((2 * bits - 1).astype(np.float64) @ changed) >= threshold[column]).mean()
    many = np.flatnonzero(~few)
    if many.size:
        counts, generator = np.zeros(many.size), np.random.default_rng(seed)
        for rows in _blocks(samples, len(differences)):
            signs = (2 * generator.integers(0, 2, (rows, len(differences)), dtype=np.int8) - 1).astype(np.float64)
            counts += (np.abs(signs @ differences[:, many]) >= threshold[many]).sum(axis=0)
        p[many] = (counts + 1) / (samples + 1)
    return p


def seeded_test(differences: Floats64, samples: int = _SIGN_PATTERNS) -> Floats64:
    """Two-sided p of differences that were measured with several seeds: chance of the queries and of the training.

    The mean over seeds of one system may lie above another's because of the queries that were drawn, or because of the
    seeds. Both are random factors, crossed: d_sq = mu + a_s + b_q + e_sq. With the mean squares of seeds, queries and
    the rest,

        t = mean / sqrt((E + MS_q) / (S Q)),   E = max(0, MS_s - m MS_e),

    where m MS_e is the median that MS_s has where seeds do not matter. E has S - 1 degrees of freedom and MS_q has
    Q - 1, so p is such that t is the mean of their quantiles, weighted by their parts of the variance:

        t = (E t_{S-1, 1-p/2} + MS_q t_{Q-1, 1-p/2}) / (E + MS_q).

    Where seeds dominate that is the t test over seeds; where their mean square is no larger than the rest explains,
    that over queries. Of two seeds MS_s is one squared difference, which is often small by chance: E is all of it.
    The variance is at least that of seeds alone.

    The means over seeds also go through `randomisation_test`, which assumes no distribution, and p is the larger of the
    two. Where all seeds have the same differences that is all.
    Sources: Clark, The Language-as-Fixed-Effect Fallacy, 1973 (quasi-F); Judd, Westfall and Kenny, 2012, for t. The
    weighted quantiles: Cochran and Cox, Experimental Designs, 1950. Satterthwaite's degrees of freedom, estimated by
    MS_s itself, are too many wherever MS_s is small by chance: p < 0.05 came out in .11 of experiments with two seeds
    that differed more than queries and had no effect.

    Args:
        differences: system minus baseline, shape (seeds, queries, comparisons).
        samples: of `randomisation_test`.
    Returns:
        p per comparison, shape (comparisons,).
    """
    seeds, queries, _ = differences.shape
    p = randomisation_test(differences.mean(axis=0), samples)
    touched = (differences != differences[0]).any(axis=(0, 1))
    if queries > 1 and touched.any():
        error, share = _crossed(differences[..., touched])
        # Without any variance of seeds' and queries' means there is no t: the randomisation test stands alone.
        varied = error > 0
        tested = np.flatnonzero(touched)[varied]
        t = np.abs(differences[..., tested].mean(axis=(0, 1))) / error[varied]
        p[tested] = np.maximum(p[tested], _probability(t, share[varied], seeds, queries))
    return p


def _crossed(differences: Floats64) -> tuple[Floats64, Floats64]:
    """Standard error of the mean over seeds and queries, and the seeds' part of its square, both by comparison."""
    seeds, queries, _ = differences.shape
    mean, of_seeds, of_queries = (differences.mean(axis=axis) for axis in ((0, 1), 1, 0))
    rest = differences - of_seeds[:, None] - of_queries + mean
    ms_seeds = queries * ((of_seeds - mean) ** 2).sum(axis=0) / (seeds - 1)
    ms_queries = seeds * ((of_queries - mean) ** 2).sum(axis=0) / (queries - 1)
    freedom = (seeds - 1) * (queries - 1)
    ms_rest = (rest**2).sum(axis=(0, 1)) / freedom
    by_chance = fdtri(seeds - 1, freedom, 0.5) * ms_rest if seeds > 2 else 0.0
    excess = np.maximum(ms_seeds - by_chance, 0.0)
    both = excess + ms_queries
    share = np.divide(excess, both, out=np.zeros_like(both), where=both > 0)
    return np.sqrt(np.maximum(both, ms_seeds) / (seeds * queries)), share


def _quantile(probability: Floats64 | float, share: Floats64, seeds: int, queries: int) -> Floats64:
    """Return the mean of Student's quantiles for seeds and queries, weighted by their shares of the variance."""
    of_seeds, of_queries = (stdtrit(number - 1, probability) for number in (seeds, queries))
    quantile: Floats64 = share * of_seeds + (1 - share) * of_queries
    return quantile


def _probability(t: Floats64, share: Floats64, seeds: int, queries: int) -> Floats64:
    """Return the two-sided p at which the weighted quantile is `t`, by halving the interval between both tests' p."""
    of_seeds, of_queries = (2 * stdtr(number - 1, -t) for number in (seeds, queries))
    low: Floats64 = np.minimum(of_seeds, of_queries)
    high: Floats64 = np.maximum(of_seeds, of_queries)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _quantile(middle / 2, share, seeds, queries) > -t  # lower tails: tiny p keep their digits
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def margins(differences: Floats64, low: Floats64, high: Floats64, confidence: float = 0.95) -> Floats64:
    """Half the width of an interval of a mean difference: what the test may have missed.

    By the bootstrap over queries of the means over seeds; where seeds differ at least that of `seeded_test`'s t, with
    queries and seeds as random factors.

    Args:
        differences: system minus baseline, shape (seeds, queries, comparisons).
        low, high: `bootstrap_interval` of the differences' means over seeds, with the same confidence.
    Returns:
        Shape (comparisons,), in the differences' unit.
    """
    seeds, queries, _ = differences.shape
    half: Floats64 = (high - low) / 2
    touched = (differences != differences[0]).any(axis=(0, 1))
    if queries > 1 and touched.any():
        error, share = _crossed(differences[..., touched])
        half[touched] = np.maximum(half[touched], error * _quantile((1 + confidence) / 2, share, seeds, queries))
    return half


def _blocks(total: int, width: int) -> Iterator[int]:
    size = max(1, CELLS_PER_BLOCK // max(width, 1))
    for start in range(0, total, size):
        yield min(size, total - start)


def holm(p: Floats64) -> Floats64:
    """p corrected for being one of several comparisons, so that the chance of any false claim stays at the level.

    Sorted ascending, p_(i) becomes max over j <= i of min(1, (m - j + 1) p_(j)), i and j from 1 to m.
    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statistics 6(2), 1979.

    Args:
        p: shape (comparisons,); any order, which the result keeps.
    """
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1.0, (len(p) - np.arange(len(p))) * p[order])
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(steps)
    return corrected


def bootstrap_interval(
    values: Floats64, confidence: float = 0.95, resamples: int = _RESAMPLES, seed: int = _SEED
) -> tuple[Floats64, Floats64]:
    """Percentile bootstrap interval of the mean over queries, a column at a time.

    Queries are drawn n of n with replacement; the interval runs from the (1 - confidence)/2 to the
    (1 + confidence)/2 quantile of the resamples' means. Source: Efron, Annals of Statistics 7(1), 1979; the
    percentile form: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13.

    Args:
        values: of a measure, shape (queries, columns).
    Returns:
        (low, high), each of shape (columns,).
    """
    n, generator = len(values), np.random.default_rng(seed)
    means = []
    for rows in _blocks(resamples, n):
        drawn = generator.integers(0, n, (rows, n)) + n * np.arange(rows)[:, None]
        # How often each query was drawn: the mean is then one product for all columns.
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        means.append(counts.astype(np.float64) @ values / n)
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return low, high
