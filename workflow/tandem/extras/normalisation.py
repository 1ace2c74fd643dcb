"""Normalise a query's scores so that one run's are comparable with another's."""

from collections.abc import Callable

import numpy as np

from tandem.data.columns import Floats64

# Normalisations take a run's scores for a query, shape (documents,), with NaN for documents that the run does not list.
# These get no more than the lowest listed score, so that being listed is never worse than not being listed.
# Where the run lists nothing, all documents get 0.


def is_flat(listed: Floats64) -> bool:
    """Return whether there are no scores, or all were equal before ties were stored as strictly falling scores."""
    if not len(listed):
        return True
    step = np.spacing(np.abs(listed).max().astype(np.float32))
    return bool(listed.max() - listed.min() < len(listed) * step)


def normalise_min_max(scores: Floats64) -> Floats64:
    """Return (s - min) / (max - min) over the listed documents: from 0 to 1; missing: 0.

    The normalisation of Lee (Analyses of Multiple Evidence Combination, SIGIR 1997). If all scores of a list are equal,
    as in a list of one, each listed document gets 1: more than a missing one.
    """
    if is_flat(scores[~np.isnan(scores)]):
        return np.where(np.isnan(scores), 0.0, 1.0)
    low = np.nanmin(scores)
    high = np.nanmax(scores)
    return _fill_missing((scores - low) / (high - low))


def normalise_z_score(scores: Floats64) -> Floats64:
    """Return (s - mean) / standard deviation (of the population) over the listed documents.

    Missing documents get the lowest of these values.

    Zero mean, unit variance: Montague and Aslam, Relevance Score Normalization for Metasearch, CIKM 2001. A list whose
    scores are all equal gives 0 to every document.
    """
    listed = scores[~np.isnan(scores)]
    if is_flat(listed):
        return np.zeros_like(scores)
    return _fill_missing((scores - listed.mean()) / listed.std())


def _fill_missing(scores: Floats64) -> Floats64:
    """Return scores with missing ones set to the lowest of them, or to 0 where all are missing."""
    lowest = np.nanmin(scores) if not np.isnan(scores).all() else 0.0
    return np.where(np.isnan(scores), lowest, scores)


NORMALIZATIONS: dict[str, Callable[[Floats64], Floats64]] = {
    "min_max": normalise_min_max,
    "z_score": normalise_z_score,
    "none": _fill_missing,
}
