"""Texts cut into windows, Chinese texts cut into words, trigrams, and the span that best matches an answer.

Windows are overlapping pieces of a fixed length, so that a model with a short input reads all of a text. Dai & Callan
(2019) slide a window of 150 words in steps of 75 over every document.
"""

import logging
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

WORD = re.compile(r"\S+")
MARK = "#"  # between a document's id and the number of a window


def count_windows(units: int, length: int, stride: int) -> int:
    """How many windows a text of so many units has; one if it is empty.

    Window n holds the units from n · stride to n · stride + length; the last one is the first that reaches the end.
    With stride ≤ length no unit is left out.
    """
    return 1 + max(0, -(-(units - length) // stride))


def units_of(text: str, unit: str) -> list[tuple[int, int]] | range:
    """The units of a text: where each word begins and ends (white space separates words), or its characters."""
    return range(len(text)) if unit == "characters" else [word.span() for word in WORD.finditer(text)]


def cut(text: str, length: int, stride: int, unit: str, most: int | None = None) -> list[str]:
    """The windows of a text, in order, as they stand in it: `length` units (`words` or `characters`), the last fewer.

    Each begins `stride` units, at most `length`, behind the one before; what is left after `most` windows is left out.
    """
    units = units_of(text, unit)
    firsts = [number * stride for number in range(count_windows(len(units), length, stride))][:most]
    if isinstance(units, range):
        return [text[first : first + length] for first in firsts]
    if not units:
        return [""]
    return [text[units[first][0] : units[min(first + length, len(units)) - 1][1]] for first in firsts]


def window_id(document: str, number: int) -> str:
    """`<document>#<number>`, numbered from 0; the number holds no `#`, so that no two windows share an id."""
    return f"{document}{MARK}{number}"


def document_of(window: str) -> tuple[str, int]:
    """A window's document and number."""
    document, _, number = window.rpartition(MARK)
    return document, int(number)


@cache
def segmenter() -> Callable[[str], list[str]]:
    """A function from a text to its words, by jieba's dictionary (accurate mode).

    Words are lower case; those without a letter or digit are left out. jieba keeps a compiled dictionary in the
    temporary folder and trusts whatever is there; here it gets a folder of its own, which costs a second.
    """
    import jieba

    jieba.setLogLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = jieba.Tokenizer()
        tokenizer.tmp_dir = folder
        tokenizer.initialize()
    return lambda text: [word.lower() for word in tokenizer.cut(text) if any(map(str.isalnum, word))]


GRAM_WORD = re.compile(r"[a-z0-9]+|[^\W_]")  # any other script counts letter by letter
GRAM = 3  # words
Grams = NDArray[np.uint64]


def trigrams(text: str) -> Grams:
    """Hashes of a text's word trigrams, each once, ascending, uint64; a shorter text is one gram."""
    words = GRAM_WORD.findall(text.lower()) or [""]
    grams = [" ".join(words[i : i + GRAM]) for i in range(max(1, len(words) - GRAM + 1))]
    return np.unique(pd.util.hash_array(np.array(grams, object), categorize=False))


def token_trigrams(ids: NDArray[Any]) -> Grams:
    """Trigrams of token ids, each once, ascending, uint64; fewer than three ids are one gram."""
    padded = np.pad(ids.astype(np.uint64) + 1, (0, max(0, GRAM - len(ids))))
    return np.unique((padded[:-2] << 42) | (padded[1:-1] << 21) | padded[2:])


def similarity(some: Grams, others: Grams) -> float:
    """Jaccard similarity of two sets of `trigrams`: shared ones, as a share of all."""
    shared = len(np.intersect1d(some, others, assume_unique=True))
    return shared / (len(some) + len(others) - shared)


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

    DuReader-retrieval, Algorithm 1, whose label is whether there is such a span. F1 of a span of length L against an
    answer of length n that share o tokens, counted as multisets, is 2 o / (L + n). The best span starts and ends with a
    token of the answer, since anything else at its ends only makes it longer. The token at place j counts in a span
    [i, j] unless the c-th token of its kind before it, c being its count in the answer, also lies in the span: o(i, j)
    is the number of places k in [i, j] with spent(k) < i. This gives every F1 by one cumulative sum a start.
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
