"""The true Jaccard similarity of candidate pairs: common shingles over all shingles of the two."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tandem.audits.noise.hashing import Hashes
from tandem.data.rows import Rows

Similarities = np.ndarray[Any, np.dtype[np.float32]]


def similarities(task: tuple[Path, Rows]) -> Similarities:
    """Jaccard similarity of pairs of shingle sets.

    Args:
        task: the file of all sets' hashes, and where in it the two sets of each pair begin and end, shape (pairs, 4);
            pairs with the same first set stand together.
    Returns:
        Shape (pairs,), between 0 and 1.
    """
    path, bounds = task
    values: Hashes = np.memmap(path, np.uint64, "r")

    @lru_cache(maxsize=1024)
    def members(start: int, stop: int) -> frozenset[int]:
        return frozenset(values[start:stop].tolist())

    made = np.empty(len(bounds), np.float32)
    for at, (first, first_end, second, second_end) in enumerate(bounds.tolist()):
        one, other = members(first, first_end), members(second, second_end)
        common = len(one & other)
        made[at] = common / (len(one) + len(other) - common)
    return made
