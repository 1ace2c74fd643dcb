"""The formats of released runs. Planning reads the beginnings of files, so that nothing here imports numpy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tandem.data.reading import is_end, iterate_lines, parse_score, parse_whole, read_fields
from tandem.errors import UserError

RunLine = tuple[str, str, str, float]  # query id, passage id, place for errors, score
_TRIPLE = "positive's score, negative's score, query id, positive's id, negative's id"


def read_trec_run(path: Path) -> Iterator[RunLine]:
    """Yield the lines `query Q0 passage rank score tag` of a run in TREC's format; the score determines the order."""
    numbered = iterate_lines(path)
    for number, line in numbered:
        where = f"{path}:{number}"
        columns = line.split()
        if len(columns) != 6:
            if is_end(line, numbered):
                return
            raise UserError(
                f"{where}: not a run line: {line.strip()!r}; it is `query Q0 doc rank score tag`"
            )
        yield columns[0], columns[2], where, parse_score(where, "score", columns[4])


def read_ranks(path: Path) -> Iterator[RunLine]:
    """Yield the lines `query`, `passage`, `rank` and perhaps `score`, by tabs: the format of MS MARCO and RocketQA.

    Their reference scripts measure by rank, which equal scores would change, so that the score becomes minus the rank.
    """
    for where, columns in read_fields(path, "query id, passage id, rank and perhaps score", 3, 4):
        if len(columns) == 4:
            parse_score(where, "score", columns[3])
        yield columns[0], columns[1], where, -float(parse_whole(where, "rank", columns[2]))


def read_triples(path: Path) -> Iterator[tuple[str, str, float, str, float]]:
    """Yield (query, positive, its score, negative, its score) of triples with a teacher's scores; see `_TRIPLE`."""
    for where, (positive_score, negative_score, query, positive, negative) in read_fields(
        path, _TRIPLE, 5
    ):
        scores = [parse_score(where, "score", score) for score in (positive_score, negative_score)]
        yield query, positive, scores[0], negative, scores[1]


# format → the function that reads its lines
RUN_FORMATS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "trec": read_trec_run,
    "ranks": read_ranks,
    "margin_mse": read_triples,
}


def check_run(path: Path, kind: str) -> None:
    """Refuse a file without a line, or whose first line does not have the format; further lines are not read."""
    if next(RUN_FORMATS[kind](path), None) is None:
        raise UserError(f"{path}: the run is empty; at least one line is needed")
