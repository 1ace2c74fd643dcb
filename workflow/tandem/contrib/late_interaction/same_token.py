"""Store the ids of tokens among the numbers of their vectors, so that only vectors of the same token are multiplied."""

from typing import Any

import numpy as np

from tandem.models.ragged import Ids
from tandem.retrieval.exact import Array

# the base in which ids are written among a vector's numbers: fp16 represents every whole number up to it
DIGIT = 2048


def join_digits(rows: Any) -> Any:
    """Return the ids of tokens that are in the last two numbers of arrays or tensors of shape (…, numbers).

    0 means no token.
    """
    return rows[..., -2] * DIGIT + rows[..., -1]


def sum_same_tokens(queries: Array, passages: Array, of_query: Ids, of_passage: Ids) -> Array:
    """Return Σ_i max_j q_i · p_j over the passage's tokens j that equal the query's token i, float64; 0 if none does.

    Only the pairs of the same token are multiplied.

    Args:
        queries, passages: vectors of their tokens end to end, with ids (see `join_digits`); shape (tokens, dim + 2).
        of_query, of_passage: how many tokens each has, shape (queries,) and (passages,).
    Returns:
        Shape (queries, passages).
    """
    query_ids = join_digits(queries)
    passage_ids = join_digits(passages)
    query_of = np.repeat(np.arange(len(of_query)), of_query)
    passage_of = np.repeat(np.arange(len(of_passage)), of_passage)
    by_id = np.argsort(passage_ids, kind="stable")
    sums = np.zeros((len(of_query), len(of_passage)))
    for wanted in np.unique(query_ids):
        first, end = np.searchsorted(passage_ids, [wanted, wanted + 1], sorter=by_id)
        if first == end:
            continue
        others = by_id[first:end]  # ascending: those of a passage side by side
        own = np.flatnonzero(query_ids == wanted)
        products = queries[own, :-2] @ passages[others, :-2].T
        texts = passage_of[others]
        begins = np.flatnonzero(np.diff(texts, prepend=-1))
        nearest = np.maximum.reduceat(products, begins, axis=1)
        # a query may have the token more than once
        np.add.at(sums, np.ix_(query_of[own], texts[begins]), nearest)
    return sums
