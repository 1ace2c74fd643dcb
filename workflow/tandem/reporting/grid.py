"""A table of texts as a page shows it: which of its columns are numbers, and by which number a cell is sorted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

NUMBER = re.compile(r"<?([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)([KM]?)")
# What may follow a number in its cell: a deviation, a mark, an interval, a share, a unit.
AFTER = re.compile(r"( ± \d[\d.]*)?[†‡]?( \[[^\]]*\])?( · [\d.]+)?( %)?")
UNITS = {"": 1.0, "K": 1e3, "M": 1e6}
NONE = ("", "–")  # cells without a value


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        title: what it shows, for those who cannot see it.
        head: titles of the columns.
        rows: texts, as many in each as the head has.
        named_by: the column that says what a row is of.
        links: where a cell leads, by row and column.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int = 0
    links: dict[tuple[int, int], str] | None = None

    @cached_property
    def numbers(self) -> list[bool]:
        """Of each column, whether it holds numbers."""
        return [_numeric([row[at] for row in self.rows]) for at in range(len(self.head))]

    def link(self, row: int, column: int) -> str:
        """Where a cell leads; empty: nowhere."""
        return (self.links or {}).get((row, column), "")


def worth(cell: str) -> float | None:
    """The number by which a cell is sorted: 41.27 of `41.27 ± 0.30†`, 0.001 of `<0.001`; None where there is none."""
    found = NUMBER.match(cell)
    return None if found is None else float(found[1].replace(",", "")) * UNITS[found[2]]


def _numeric(cells: Sequence[str]) -> bool:
    """Whether each cell is a number, with what may follow one, or empty; of nothing but empty cells it is not known."""
    told = [cell for cell in cells if cell not in NONE]
    return bool(told) and all((found := NUMBER.match(cell)) and AFTER.fullmatch(cell, found.end()) for cell in told)
