"""Which passages are known to be relevant: no loss may call them negatives."""

from dataclasses import replace

import numpy as np

from tandem.models.ragged import Ids, spread
from tandem.training.lists import Batch


class Positives:
    """The known positives of each query, as sorted (query row, passage row) pairs.

    Args:
        queries: query row of each relevant pair, shape (pairs,).
        passages: its passage row, shape (pairs,).
    """

    def __init__(self, queries: Ids, passages: Ids) -> None:
        self.keys = np.unique(queries.astype(np.int64) << 32 | passages.astype(np.int64))

    def known(self, queries: Ids, passages: Ids) -> Ids:
        """Whether each passage is a known positive of each query: shape (queries, passages).

        The queries' few positives are looked up among the passages, not every passage among all positives.
        """
        rows = queries.astype(np.int64)
        first, last = np.searchsorted(self.keys, rows << 32), np.searchsorted(self.keys, (rows + 1) << 32)
        of = np.repeat(np.arange(len(rows)), last - first)
        relevant = self.keys[spread(first, last - first)] & 0xFFFFFFFF
        order = np.argsort(passages, kind="stable")
        left, right = (np.searchsorted(passages[order], relevant, side) for side in ("left", "right"))
        made = np.zeros((len(rows), len(passages)), bool)
        made[np.repeat(of, right - left), order[spread(left, right - left)]] = True
        return made

    def lengthened(self, batch: Batch) -> Batch:
        """Each list followed by the other queries' positives that are not its own query's.

        A teacher has not scored what was added.
        """
        firsts = batch.passages[:, 0]
        others = np.tile(firsts, (len(firsts), 1))
        barred = self.known(batch.queries, firsts) | np.eye(len(firsts), dtype=bool)
        taught = batch.teacher
        if taught is not None:
            taught = np.concatenate([taught, np.full(others.shape, np.nan, taught.dtype)], 1)
        passages = np.concatenate([batch.passages, np.where(barred, -1, others)], 1)
        return replace(batch, passages=passages, teacher=taught)
