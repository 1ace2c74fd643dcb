"""Indexes of stored vectors as packages share them: how a built index is opened, searched, served and compared.

A package that builds indexes registers the first three under its kind of stage; late interaction searches through them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tandem.cluster.progress import warn
from tandem.plan.graph import Stage
from tandem.registry import Registry
from tandem.store.job import Draft, Job

if TYPE_CHECKING:  # planning registers here, and reads no vectors
    from tandem.data.columns import Floats, RankedRows
    from tandem.data.rows import Rows
    from tandem.retrieval.exact import Array, BestPassages

COPIES_FILE = "copies.npy"  # which vectors an index stores, if it stores equal ones once
# limits of FAISS on a GPU: passages retrieved per query, and inverted lists searched
MOST_ON_GPU = 2048


class SearchedIndex(Protocol):
    """An index that searches stored vectors by its own scores, and reads them back.

    Attributes:
        rows: the number of vectors.
        gpu: how GPUs share it; `NONE` without GPUs. An index on a GPU is not read back.
    """

    rows: int
    gpu: str

    def tune(self, nprobe: int | None, ef_search: int | None) -> None:
        """Set how much of the index a search looks at; None keeps the index's own value."""

    def search(self, queries: "Floats", k: int) -> "tuple[Floats, Rows]":
        """Return scores and rows of the `k` best of each query, best first; row -1 where there are no more."""

    def decode(self, rows: "Rows") -> "Floats":
        """Return the vectors that the index's codes represent, for rows in any order, shape (rows, dim)."""


class RankedSearch(Protocol):
    """Rank passages for queries' vectors."""

    def search(self, queries: "Array", depth: int) -> "BestPassages":
        """Return the best passages of queries, shape (queries, dim)."""


# By kind of stage that builds an index: `(artifact, threads, gpu) -> index`.
opened_index: Registry[Callable[..., SearchedIndex]] = Registry(
    "index", "opened_index", "extras.searched_indexes", decides=False
)
# By the same kind: `(part, passages, ranks, threads) -> search` of single vectors in a worker of `tandem search`.
served_index: Registry[Callable[..., RankedSearch]] = Registry(
    "served index", "served_index", "extras.searched_indexes", decides=False
)
# By the same kind: `(stage, setting) -> size`, the numbers about an index that determine its costs.
index_size: Registry[Callable[..., Any]] = Registry(
    "size of an index", "index_size", "extras.searched_indexes", decides=False
)
# By `Kind.vectors`: `(job) -> searches`, such as a package's `VectorSearches`, which the stage `tradeoffs` compares.
compared_searches: Registry[Callable[..., Any]] = Registry(
    "compared search", "compared_searches", "extras.searched_indexes", decides=False
)
# By `Representation.encoding`, for encodings not stored as vectors: `(ctx, options, model, split) -> stage` that
# compares the searches of a dual encoder in place of `tradeoffs`; `options` are those of that key.
plans_comparison: Registry[Callable[..., Stage]] = Registry(
    "plan of a comparison", "plans_comparison", "extras.searched_indexes", decides=False
)


def space_evenly(rows: int, most: int) -> "Array":
    """Return `most` of `rows` row numbers, evenly spaced, or all of them.

    >>> space_evenly(10, 4).tolist()
    [0, 2, 5, 7]
    """
    count = min(rows, most)
    return np.arange(count) * rows // count


class ShortLists:
    """Counts the lists of a search that are shorter than `depth`, where exact search would find that many."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.lists = 0
        self.short = 0
        self.fewest = depth

    def count(self, ranked: "Iterable[RankedRows]") -> "Iterator[RankedRows]":
        """Yield the same lists and count each."""
        for query, rows, scores in ranked:
            self.lists += 1
            self.short += len(rows) < self.depth
            self.fewest = min(self.fewest, len(rows))
            yield query, rows, scores

    def warn(self, job: Job[Any], draft: Draft, remedy: str) -> None:
        """Warn of the short lists that were counted."""
        if self.short:
            short = (
                f"{self.short:,} of {self.lists:,} queries have fewer than {self.depth:,} passages"
            )
            warn(job, draft, f"{short}, the least {self.fewest:,}; {remedy}")
