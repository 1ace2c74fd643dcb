"""Bringing the scores of one run for one query to a scale that another run's scores can be added on.

Each function takes a column of a pool, shape (documents,), NaN where the run has no score, and fills it: a document
that the run does not list gets no more than the last one that it lists, so that being listed is never worse than not.
A run that found nothing for the query gives 0 to all.
"""

from collections.abc import Callable

import numpy as np

from tandem.fusion.pool import Floats64


def min_max(scores: Floats64) -> Floats64:
    """(s - min) / (max - min) over what the run lists: from 0 to 1; missing: 0.

    The normalisation of Lee (Analyses of Multiple Evidence Combination, SIGIR 1997). Of a list whose scores are all
    equal, a list of one among them, each has 1: to be listed is all that it says, and more than missing.
    """
    listed = scores[~np.isnan(scores)]
    if not len(listed) or listed.min() == listed.max():
        return np.where(np.isnan(scores), 0.0, 1.0)
    return _filled((scores - listed.min()) / (listed.max() - listed.min()))


def z_score(scores: Floats64) -> Floats64:
    """(s - mean) / standard deviation (of the population) over what the run lists; missing: the lowest of these.

    Zero mean, unit variance: Montague and Aslam, Relevance Score Normalization for Metasearch, CIKM 2001. A list whose
    scores are all equal gives 0 to every document.
    """
    listed = scores[~np.isnan(scores)]
    if not len(listed) or listed.min() == listed.max():
        return np.zeros_like(scores)
    return _filled((scores - listed.mean()) / listed.std())


def none(scores: Floats64) -> Floats64:
    """Scores as they are; missing: the lowest of these."""
    return _filled(scores)


def _filled(scores: Floats64) -> Floats64:
    """The lowest score where there is none; 0 where there is none at all."""
    lowest = np.nanmin(scores) if not np.isnan(scores).all() else 0.0
    return np.where(np.isnan(scores), lowest, scores)


NORMALIZATIONS: dict[str, Callable[[Floats64], Floats64]] = {"min_max": min_max, "z_score": z_score, "none": none}
