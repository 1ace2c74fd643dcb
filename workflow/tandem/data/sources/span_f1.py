"""Span-level F1: how well the best contiguous span of a paragraph matches an answer, exactly.

F1 of a span of length L against an answer of length n that share o tokens, counted as multisets, is 2 o / (L + n). The
best span starts and ends with a token of the answer, since anything else at its ends only makes it longer. So it is
looked for among the places of the answer's tokens. The token at place j counts in a span [i, j] unless the answer's
share of this token is used up, that is unless the c-th token of its kind before it, c being its count in the answer,
also lies in the span: o(i, j) is the number of places k in [i, j] with spent(k) < i. This gives every F1 by one
cumulative sum a start.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

CELLS = 1 << 18  # spans that are weighed at once: some MiB
FAR = 1 << 40  # a place no paragraph reaches
Places = NDArray[np.int64]


class Span(NamedTuple):
    """Tokens `start` to `end` (exclusive) of a paragraph and their F1 against an answer."""

    start: int
    end: int
    f1: float


def best_span(paragraph: Sequence[str], answer: Sequence[str], threshold: float) -> Span | None:
    """The span of a paragraph's tokens with the highest F1 against an answer's; of equal ones the first, then the
    shortest; None if none reaches the threshold, which is above 0.

    DuReader-retrieval, Algorithm 1, whose label is whether there is such a span.
    """
    places, spent = _places(paragraph, answer)
    shared = int((spent < 0).sum())
    # No span shares more than the paragraph does, nor is shorter than what it shares.
    if shared == 0 or 2 * shared / (shared + len(answer)) < threshold:
        return None
    longest = int(2 * shared / threshold) - len(answer) + 1  # from F1 ≥ threshold; 1 more for the rounding of floats
    width = int((np.searchsorted(places, places + longest) - np.arange(len(places))).max())
    best = Span(0, 0, 0.0)
    rows = max(1, CELLS // width)
    for row in range(0, len(places), rows):
        span = _best_of(places, spent, row, rows, width, len(answer))
        best = max(best, span, key=lambda candidate: candidate.f1)
    return best if best.f1 >= threshold else None


def _places(paragraph: Sequence[str], answer: Sequence[str]) -> tuple[Places, Places]:
    """Where the answer's tokens stand in a paragraph, and for each the place that must lie before a span's start for
    it to count: that of the c-th token of its kind before it, -1 if there is none."""
    counts = Counter(answer)
    before: dict[str, list[int]] = defaultdict(list)
    places, spent = [], []
    for place, token in enumerate(paragraph):
        if count := counts.get(token):
            same = before[token]
            places.append(place)
            spent.append(same[-count] if len(same) >= count else -1)
            same.append(place)
    return np.array(places, np.int64), np.array(spent, np.int64)


def _best_of(places: Places, spent: Places, row: int, rows: int, width: int, length: int) -> Span:
    """The best of the spans that start at one of `rows` places from `row` on and hold at most `width` of them."""
    starts = places[row : row + rows, None]
    part = slice(row, row + len(starts) + width - 1)
    short = len(starts) + width - 1 - len(places[part])
    ends = sliding_window_view(np.pad(places[part], (0, short), constant_values=FAR), width)
    limits = sliding_window_view(np.pad(spent[part], (0, short), constant_values=FAR), width)
    f1 = 2 * np.cumsum(limits < starts, axis=1) / (ends - starts + 1 + length)
    at, end = divmod(int(f1.argmax()), width)
    return Span(int(starts[at, 0]), int(ends[at, end]) + 1, float(f1[at, end]))
