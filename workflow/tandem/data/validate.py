"""Checks on ids in little memory for any corpus: ids are stored as 64-bit hashes, 8 bytes each.

A duplicate is first a pair of equal hashes and then confirmed on the ids themselves; membership trusts the hash (a
wrong answer among 8.8 million ids has odds of 1 to 10¹²). Finding duplicates sorts the hashes: about 24 bytes an id at
its peak, 220 MB for 8.8 million.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tandem.errors import UserError


class Hashes:
    """64-bit hashes of texts, or of pairs of them, in the order they came."""

    def __init__(self) -> None:
        self._values = array("q")
        self._sorted: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, texts: Iterable[Hashable]) -> None:
        """Append the hash of each text (Python's own: it differs from process to process, so it is never stored)."""
        self._values.extend(map(hash, texts))

    def array(self) -> NDArray[np.int64]:
        """All hashes, int64, without a copy."""
        return np.frombuffer(self._values, np.int64)

    def count_repeats(self) -> int:
        """How many texts repeat an earlier one."""
        ordered = np.sort(self.array())
        return int((ordered[1:] == ordered[:-1]).sum())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """(earlier row, later row), from 0, of neighbours with an equal hash, by the later row."""
        values = self.array()
        ordered = self._in_order()
        twice = np.flatnonzero(np.isin(values, ordered[1:][ordered[1:] == ordered[:-1]]))
        again = twice[np.argsort(values[twice], kind="stable")]
        at = np.flatnonzero(values[again[1:]] == values[again[:-1]])
        yield from sorted(zip(again[at].tolist(), again[at + 1].tolist(), strict=True), key=lambda pair: pair[1])

    def has(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """For each text whether it was added."""
        others, ordered = Hashes(), self._in_order()
        others.add(texts)
        if not len(ordered):
            return np.zeros(len(others), np.bool_)
        at = np.searchsorted(ordered, others.array()).clip(max=len(ordered) - 1)
        hits: NDArray[np.bool_] = ordered[at] == others.array()
        return hits

    def rows(self, others: "Hashes") -> NDArray[np.int64]:
        """The first row of each of some other hashes, -1 for an unknown one."""
        distinct, back = np.unique(others.array(), return_inverse=True)
        rows = np.full(len(distinct), -1)
        if len(distinct):
            at = np.searchsorted(distinct, self.array()).clip(max=len(distinct) - 1)
            hits = np.flatnonzero(distinct[at] == self.array())[::-1]  # of repeated values the last one wins
            rows[at[hits]] = hits
        return rows[back]

    def _in_order(self) -> NDArray[np.int64]:
        """The hashes, sorted; cached, as training lists look up a few at a time."""
        if len(self._sorted) != len(self):
            self._sorted = np.sort(self.array())
        return self._sorted


def first_occurrences(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """For each value whether no earlier one equals it."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def require_unique_hashes(what: str, place: str, hashes: Hashes, id_at: Callable[[int], str]) -> None:
    """Refuse ids that occur twice; `id_at` gives the id of a row from 0, `what` and `place` are for the message."""
    for first, second in hashes.pairs():
        if id_at(first) == id_at(second):
            again = f"{place}:{second + 1}: {what} id {id_at(second)!r} again, first at {first + 1}"
            raise UserError(f"{again}; every id must be unique")


def require_unique(what: str, place: str, ids: list[str]) -> None:
    """`require_unique_hashes` of ids that are in memory."""
    hashes = Hashes()
    hashes.add(ids)
    require_unique_hashes(what, place, hashes, ids.__getitem__)


def require_usable(what: str, place: str, first: int, *ids: str) -> None:
    """Refuse ids that a run file could not carry: empty ones, or with white space; the first is in row `first`."""
    if " ".join(ids).split() != list(ids):
        row, name = next((row, name) for row, name in enumerate(ids, start=first) if name.split() != [name])
        raise UserError(f"{place}:{row}: {what} id {name!r}; an id must not be empty or hold white space")
