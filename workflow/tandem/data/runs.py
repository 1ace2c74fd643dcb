"""Runs in TREC format, one rule for ties: by score (as float32, higher first), then by document id (lower first).

A line is `query Q0 document rank score tag`; scores are printed with nine digits, which round-trips a float32.
Document ids compare by Unicode code points.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import isnan
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.errors import UserError
from tandem.store.artifact import Artifact

Floats = NDArray[np.float32]


def ranked_order(docs: Sequence[str], scores: Sequence[float] | Floats) -> list[tuple[str, float]]:
    """(document, score rounded to float32) by score descending, then document ascending.

    Raises:
        ValueError: a score is not a number, or the lengths differ.
    """
    rounded: list[float] = np.asarray(scores, np.float32).tolist()
    if any(map(isnan, rounded)):
        raise ValueError("a score is not a number")
    return sorted(zip(docs, rounded, strict=True), key=lambda pair: (-pair[1], pair[0]))


def write_run(path: Path, ranked: Iterable[tuple[str, Sequence[str], Sequence[float] | Floats]], tag: str) -> int:
    """Write a run as it streams in, in the order of its queries, and return the number of lines.

    Args:
        path: the file to write.
        ranked: (query id, document ids, scores) per query; the documents may come in any order.
        tag: the last column: the key of the stage that made the run.
    """
    lines = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for query, docs, scores in ranked:
            pairs = ranked_order(docs, scores)
            file.writelines(f"{query} Q0 {d} {rank} {s:.9g} {tag}\n" for rank, (d, s) in enumerate(pairs, start=1))
            lines += len(pairs)
    return lines


def iter_run(path: Path) -> Iterator[tuple[str, list[str], Floats]]:
    """(query id, document ids, scores as float32) per query, in file order.

    Raises:
        UserError: a malformed line, a query whose lines are not together, or a document listed twice for a query.
    """
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from lists(path, file)


def lists(path: Path, lines: Iterable[str], first_line: int = 1) -> Iterator[tuple[str, list[str], Floats]]:
    """`iter_run` of some lines of a run; `path` and the number of the first line are for messages."""
    done: set[str] = set()
    for query, group in groupby(_lines(path, lines, first_line), key=itemgetter(0)):
        first, docs, scores = 0, [], []
        for _, doc, score, number in group:
            first = first or number
            docs.append(doc)
            scores.append(score)
        if query in done:
            raise UserError(f"{path}:{first}: query {query} again; the lines of a query must stand together")
        if len(set(docs)) != len(docs):
            twice = next(d for i, d in enumerate(docs) if d in docs[:i])
            raise UserError(f"{path}:{first}: query {query} lists document {twice} twice; once is allowed")
        done.add(query)
        yield query, docs, np.asarray(scores, np.float32)


def followed(scores: Floats, documents: int) -> Floats:
    """Scores of a re-ranked top and, up to so many documents, whole numbers falling from below the lowest."""
    below = np.floor(scores.min(initial=0.0)) - 1 - np.arange(documents - len(scores), dtype=np.float32)
    return np.concatenate([scores, below])


def scored_depth(run: Artifact) -> int | None:
    """Down to which rank the scores of a run artifact say something; None: all of them do.

    A re-ranked run is scored down to its `depth`; below, its numbers only keep the first stage's order.
    """
    return int(run.params["depth"]) if run.manifest.kind.startswith("rerank") else None


def _lines(path: Path, file: Iterable[str], first: int) -> Iterator[tuple[str, str, float, int]]:
    """(query, document, score, line number) of each line."""
    for number, line in enumerate(file, start=first):
        try:
            query, _, doc, _, score, _ = line.split()
            value = float(score)
        except ValueError:
            value = float("nan")
        if isnan(value):
            raise UserError(f"{path}:{number}: not a run line: {line.strip()!r}; it is `query Q0 doc rank score tag`")
        yield query, doc, value, number
