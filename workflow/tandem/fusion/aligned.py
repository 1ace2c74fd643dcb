"""A run read in the order of its split's queries, in whatever order its file lists them."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.data.runs import Floats, iter_run, lists
from tandem.errors import UserError


class Span(NamedTuple):
    """Where a query's lines stand in a file: first byte, number of bytes, number of the first line."""

    start: int
    size: int
    line: int


def aligned(path: Path, places: dict[str, int]) -> Iterator[tuple[int, list[str], Floats]]:
    """(place of the query, documents, scores) of each query that a run lists, places ascending; one is held at a time.

    A file in another order is looked through once to see where each query's lines begin, and then read query by query.

    Args:
        path: the run's file.
        places: query → its place in the split.
    Raises:
        UserError: as `iter_run`; a query that is not of the split; a score that is infinite.
    """
    spans = _scattered(path, places)
    for query, docs, scores in iter_run(path) if spans is None else _jumping(path, spans):
        if query not in places:
            raise UserError(f"{path}: holds query {query}, which the split lacks; fuse runs of one split")
        if not np.isfinite(scores).all():
            raise UserError(f"{path}: query {query} has an infinite score, which cannot be added; only numbers can")
        yield places[query], docs, scores


def _scattered(path: Path, places: dict[str, int]) -> list[Span] | None:
    """The queries' lines in the order of their places; None where that is the file's order, or the file is wrong."""
    found: list[tuple[int, int, int]] = []  # place, first byte, first line
    at, last = 0, b""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            query = line.split(maxsplit=1)[0] if line.strip() else b""
            if query != last:
                place = places.get(query.decode(errors="replace"))
                if place is None:
                    return None  # what is wrong with it is said where it is read
                found.append((place, at, number))
            at, last = at + len(line), query
    order = [place for place, _, _ in found]
    if all(a < b for a, b in pairwise(order)) or len(set(order)) < len(order):
        return None
    ends = [start for _, start, _ in found[1:]] + [at]
    spans = [(place, Span(start, end - start, line)) for (place, start, line), end in zip(found, ends, strict=True)]
    return [span for _, span in sorted(spans)]


def _jumping(path: Path, spans: list[Span]) -> Iterator[tuple[str, list[str], Floats]]:
    """`iter_run` in the order of the spans."""
    with open(path, "rb") as file:
        for span in spans:
            file.seek(span.start)
            text = file.read(span.size).decode()
            yield from lists(path, text.removesuffix("\n").split("\n"), span.line)
