"""Which passages are known to be relevant: no loss may call them negatives."""

import numpy as np

from tandem.models.template import Ids


class Positives:
    """The known positives of each query, as sorted (query row, passage row) pairs.

    Args:
        queries: query row of each relevant pair, shape (pairs,).
        passages: its passage row, shape (pairs,).
    """

    def __init__(self, queries: Ids, passages: Ids) -> None:
        self.keys = np.unique(queries.astype(np.int64) << 32 | passages.astype(np.int64))

    def known(self, queries: Ids, passages: Ids) -> Ids:
        """Whether each passage is a known positive of each query: shape (queries, passages)."""
        keys = queries.astype(np.int64)[:, None] << 32 | passages.astype(np.int64)[None, :]
        return np.isin(keys, self.keys)
