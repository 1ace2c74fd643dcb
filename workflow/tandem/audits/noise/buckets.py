"""Which passages may be alike: equal texts by their hash, similar ones by a common bucket.

Arrays over all passages are few: 8 bytes for hashes, 4 for the first of each text, 28 while something is sorted.
"""

from typing import Any

import numpy as np

from tandem.audits.noise.hashing import Hashes
from tandem.data.rows import Rows

Firsts = np.ndarray[Any, np.dtype[np.uint32]]

# A passage is compared with at most so many that follow it in a bucket. Buckets are almost always smaller; in a large
# one (thousands of passages from one template) all pairs would be quadratic, and neighbours still join the group.
WINDOW = 32
HIGH = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


def first_of_equal(hashes: Hashes) -> Firsts:
    """For each passage the first row whose hash is the same; an empty passage (hash 0) is its own.

    Two different texts share a 64-bit hash with odds of about 1 to 500,000 in a corpus of 8.8 million.
    """
    order = np.argsort(hashes, kind="stable").astype(np.uint32)
    ordered = hashes[order]
    begins = np.ones(len(hashes), bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = np.empty(len(hashes), np.uint32)
    first[order] = order[np.maximum.accumulate(np.where(begins, np.arange(len(hashes)), 0))]
    empty = np.flatnonzero(hashes == 0)
    first[empty] = empty
    return first


def bucket_pairs(keys: Hashes, rows: Firsts) -> tuple[Hashes, int]:
    """Pairs of passages with an equal key in one band.

    Args:
        keys: of this band, of the passages that count: one of each text.
        rows: these passages' rows, ascending.
    Returns:
        Packed pairs (`pack`), lower row first, and how many pairs of large buckets `WINDOW` left out.
    """
    order = np.argsort(keys, kind="stable")
    ordered, members = keys[order], rows[order]
    del order
    found = [np.empty(0, np.uint64)]
    for step in range(1, WINDOW + 1):
        same = ordered[step:] == ordered[:-step]
        if not same.any():
            break
        found.append(pack(members[:-step][same], members[step:][same]))
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])) if len(ordered) else [0]
    beyond = np.maximum(np.diff(edges) - WINDOW - 1, 0)
    return np.concatenate(found), int((beyond * (beyond + 1) // 2).sum())


def pack(lower: Any, higher: Any) -> Hashes:
    """Two rows below 2^32 as one 64-bit number that sorts by the lower, then the higher."""
    packed: Hashes = (np.asarray(lower).astype(np.uint64) << HIGH) | np.asarray(higher).astype(np.uint64)
    return packed


def unpack(pairs: Hashes) -> tuple[Rows, Rows]:
    """`pack` undone: the lower and the higher rows."""
    return (pairs >> HIGH).astype(np.int64), (pairs & LOW).astype(np.int64)
