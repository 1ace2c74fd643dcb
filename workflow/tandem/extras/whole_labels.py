"""Whole numbers of 32 bits, as which relevance and labels are stored: Arrow would cut others to them in silence."""

from collections.abc import Iterable, Iterator
from numbers import Real

from tandem.data.sources import Judgement, Listed
from tandem.errors import UserError

_NEEDED = "a whole number of 32 bits is needed"


def require_whole_grades(rows: Iterable[Judgement]) -> Iterator[Judgement]:
    """Yield judgements; a `UserError` for a relevance that is not a whole number; `1.0` is 1."""
    for row in rows:
        query, doc, grade, split = row
        if not _is_whole(grade):
            judged = f"qrels: split {split}: the relevance of passage {doc} for query {query}"
            raise UserError(f"{judged} is {grade!r}; {_NEEDED}")
        yield row


def require_whole_labels(rows: Iterable[Listed]) -> Iterator[Listed]:
    """Yield rows of training lists; a `UserError` for a label that is not a whole number; `1.0` is 1."""
    for row in rows:
        query, doc, label, _ = row
        if not _is_whole(label):
            listed = f"lists: the label of passage {doc} for query {query}"
            raise UserError(f"{listed} is {label!r}; {_NEEDED}, a score stands behind the label")
        yield row


def _is_whole(number: int) -> bool:
    """Return whether a number is what it is declared to be; a plugin's may be anything."""
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    # `<` first: neither NaN nor infinity has a whole part
    return is_number and abs(number) < 2**31 and number == int(number)
