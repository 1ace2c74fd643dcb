"""Make tied scores strictly falling, list by list."""

from collections.abc import Iterable, Iterator
from math import nan
from typing import Any

import numpy as np

from tandem.data.columns import Floats

_LOWEST = np.float32(-np.inf)


def lower_ties(ranked: Iterable[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Yield ranked (document, float32 score) with strictly falling scores: a tie becomes the next lower float32."""
    last = nan
    for doc, score in ranked:
        if score >= last:
            score = float(np.nextafter(np.float32(last), _LOWEST))
        yield doc, score
        last = score


def break_ties_by_place(scores: np.ndarray[Any, np.dtype[np.floating]]) -> Floats:
    """Return scores as float32, shape (passages,); among equal ones, earlier ones are higher by the least bit."""
    rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")
    apart = np.empty(len(rounded), np.float32)
    apart[order] = [score for _, score in lower_ties(("", float(rounded[at])) for at in order)]
    return apart
