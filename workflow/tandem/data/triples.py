"""Triples with a teacher's scores, as published for Margin-MSE (Hofstätter et al. 2020), as the run of that teacher.

A line is `positive's score`, `negative's score`, `query`, `positive`, `negative`, by tabs, in any order. A pair that
stands on several lines keeps the score of the first.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tandem.data.reading import fields, number

PIECE = 1 << 16  # pairs handed on between two conversions
COLUMNS = "positive's score, negative's score, query id, positive's id, negative's id"


def scored_triples(path: Path) -> Iterator[tuple[str, str, str, float]]:
    """(query id, passage id, file, score) of each pair, those of a query together, queries as they first appear.

    Memory: about 30 bytes a line, and the ids once.
    """
    queries: dict[str, int] = {}
    passages: dict[str, int] = {}
    keys, scores, positives = array("Q"), array("d"), set()
    for where, (positive_score, negative_score, query, positive, negative) in fields(path, COLUMNS, 5):
        row = queries.setdefault(query, len(queries)) << 32
        for doc, told in ((positive, positive_score), (negative, negative_score)):
            key, score = row | passages.setdefault(doc, len(passages)), number(where, "score", told)
            if key not in positives:
                keys.append(key)
                scores.append(score)
            if doc is positive:
                positives.add(key)  # it stands on every line of its query
    pairs, first = np.unique(np.frombuffer(keys, np.uint64), return_index=True)
    told_of, query_of, doc_of, place = np.frombuffer(scores), list(queries), list(passages), str(path)
    for start in range(0, len(pairs), PIECE):
        part = slice(start, start + PIECE)
        for key, score in zip(pairs[part].tolist(), told_of[first[part]].tolist(), strict=True):
            yield query_of[key >> 32], doc_of[key & 0xFFFFFFFF], place, score
