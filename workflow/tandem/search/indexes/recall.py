"""How much of the exact top an index finds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem.search.blocks import Embeddings
from tandem.search.exact import Array, Best
from tandem.search.flat import BlockSearch

Ranks = np.ndarray[Any, np.dtype[np.int64]]


def exact(passages: Embeddings, queries: Array, ranks: Array, depth: int) -> list[Ranks]:
    """Alphabetical ranks of each query's exact top, best first, by a pass over all passages.

    Args:
        passages: all vectors.
        queries: shape (queries, dim).
        ranks: alphabetical rank of each row's id.
        depth: passages a query.
    """
    best, everyone = Best(len(queries), min(depth, passages.rows)), slice(0, len(queries))
    for start, vectors in passages.blocks():
        block = BlockSearch(vectors, ranks[start : start + len(vectors)], passages.meta["temperature"])
        best.add(everyone, block.candidates(queries, best.depth, best.floors(everyone)))
    return [best.ranked(query)[0] for query in range(len(queries))]


def recall(found: Sequence[Ranks], true: Sequence[Ranks], k: int) -> float:
    """Mean share of the exact top k that is among the first k found."""
    shares = [len(np.intersect1d(ours[:k], best[:k])) / len(best[:k]) for ours, best in zip(found, true, strict=True)]
    return float(np.mean(shares))
