"""Check that relevance and labels are whole numbers of 32 bits, as they are stored: Arrow would cut others silently."""

from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import TypeVar

from tandem.data.sources import Judgement, Listed
from tandem.errors import UserError

_Row = TypeVar("_Row", Judgement, Listed)
_NEEDED = "a whole number of 32 bits is needed"


def require_whole_grades(rows: Iterable[Judgement]) -> Iterator[Judgement]:
    """Return judgements as they come; a `UserError` for a relevance that is not a whole number; `1.0` is 1."""
    return _require_whole(rows, _name_judgement, _NEEDED)


def require_whole_labels(rows: Iterable[Listed]) -> Iterator[Listed]:
    """Return rows of training lists as they come; a `UserError` for a label that is not a whole number; `1.0` is 1."""
    return _require_whole(rows, _name_label, f"{_NEEDED}, a score stands behind the label")


def _name_judgement(row: Judgement) -> str:
    query, doc, _, split = row
    return f"qrels: split {split}: the relevance of passage {doc} for query {query}"


def _name_label(row: Listed) -> str:
    query, doc, *_ = row
    return f"lists: the label of passage {doc} for query {query}"


def _require_whole(
    rows: Iterable[_Row], name: Callable[[_Row], str], needed: str
) -> Iterator[_Row]:
    """Yield rows whose third entry is a whole number."""
    for row in rows:
        if not _is_whole(row[2]):
            raise UserError(f"{name(row)} is {row[2]!r}; {needed}")
        yield row


def _is_whole(number: int) -> bool:
    """Return whether a number is a whole one, as declared; a plugin's may be anything."""
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    # `<` comes first: neither NaN nor infinity has a whole part
    return is_number and abs(number) < 2**31 and number == int(number)
