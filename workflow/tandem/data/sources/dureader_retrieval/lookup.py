"""Where in the collection some passages are of which only the text is known: one pass, 16 bytes a wanted text.

Texts are the same if they are but for white space. They are compared by 64-bit hashes, of this process only.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BATCH = 1 << 14


def mark(text: str) -> int:
    """What tells two texts apart: the hash of their words."""
    return hash(" ".join(text.split()))


def find_rows(wanted: NDArray[np.int64], texts: Iterable[str]) -> NDArray[np.int64]:
    """The first row of each wanted text in a collection.

    Args:
        wanted: marks of the texts, repeated or not, in any order.
        texts: all texts of the collection.
    Returns:
        For each mark the row, from 0, of the first text that has it; -1 where none has.
    """
    marks, back = np.unique(wanted, return_inverse=True)
    rows = np.full(len(marks), -1, np.int64)
    before = 0
    for part in _batches(texts):
        found = np.isin(part, marks)
        at = np.searchsorted(marks, part[found])
        row = before + np.flatnonzero(found)
        # Of two equal texts the first counts: later assignments win, so they go in reverse and never replace a row.
        new = rows[at] < 0
        rows[at[new][::-1]] = row[new][::-1]
        before += len(part)
    return rows[back]


def _batches(texts: Iterable[str]) -> Iterable[NDArray[np.int64]]:
    """Marks of the texts, some thousand at a time."""
    part = array("q")
    for text in texts:
        part.append(mark(text))
        if len(part) == BATCH:
            yield np.array(part, np.int64)
            part = array("q")
    yield np.array(part, np.int64)
