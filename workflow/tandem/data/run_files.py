"""Files of released runs, by format: their lines, and whether a file begins as one.

Planning looks at their beginnings: nothing here imports a numerical library.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tandem.data.reading import fields, lines, parse_number, parse_whole
from tandem.errors import UserError

TRIPLE = "positive's score, negative's score, query id, positive's id, negative's id"

Line = tuple[str, str, str, float]  # query id, passage id, place for errors, score


def read_trec(path: Path) -> Iterator[Line]:
    """The lines `query Q0 passage rank score tag` of a run in TREC's format, to be ordered by score."""
    for number, line in lines(path):
        where, columns = f"{path}:{number}", line.split()
        if len(columns) != 6:
            raise UserError(f"{where}: not a run line: {line.strip()!r}; it is `query Q0 doc rank score tag`")
        yield columns[0], columns[2], where, parse_number(where, "score", columns[4])


def read_ranks(path: Path) -> Iterator[Line]:
    """The lines `query`, `passage`, `rank` and perhaps `score`, by tabs: MS MARCO's and RocketQA's format.

    Their reference scripts measure by rank, and equal scores would change it: the score becomes minus the rank.
    """
    for where, columns in fields(path, "query id, passage id, rank and perhaps score", 3, 4):
        if len(columns) == 4:
            parse_number(where, "score", columns[3])
        yield columns[0], columns[1], where, -float(parse_whole(where, "rank", columns[2]))


def read_triples(path: Path) -> Iterator[tuple[str, str, float, str, float]]:
    """(query, positive, its score, negative, its score) of triples with a teacher's scores, whose order is `TRIPLE`."""
    for where, (positive_score, negative_score, query, positive, negative) in fields(path, TRIPLE, 5):
        scores = [parse_number(where, "score", score) for score in (positive_score, negative_score)]
        yield query, positive, scores[0], negative, scores[1]


LINES: dict[str, Callable[[Path], Iterator[object]]] = {
    "trec": read_trec,
    "ranks": read_ranks,
    "margin_mse": read_triples,
}


def check_beginning(path: Path, kind: str) -> None:
    """Refuse a file without a line, or whose first one is not of its format; no more is read."""
    if next(LINES[kind](path), None) is None:
        raise UserError(f"{path}: the run is empty; at least one line is needed")
