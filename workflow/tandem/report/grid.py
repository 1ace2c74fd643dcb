"""A table of texts, and its renderings: CSV, Markdown, LaTeX, HTML and aligned text."""

import csv
import io
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.report.page import render

NUMBER = re.compile(r"<?([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)([KM]?)")
# What may follow a number in its cell: a deviation, a mark, an interval, a share, a unit.
AFTER = re.compile(r"( ± \d[\d.]*)?( [▲▼])?( \[[^\]]*\])?( · [\d.]+)?( %)?")
UNITS = {"": 1.0, "K": 1e3, "M": 1e6}
EMPTY = ("", "–")  # cells without a value
WIDEST_NOTES = 120
SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "▲": r"\ensuremath{\bigtriangleup}",
    "▼": r"\ensuremath{\bigtriangledown}",
    "†": r"\ensuremath{^{\dagger}}",
    "‡": r"\ensuremath{^{\ddagger}}",
    "Δ": r"\ensuremath{\Delta}",
    "–": "--",
    "−": r"\ensuremath{-}",
    "—": "---",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "≥": r"\ensuremath{\geq}",
    "≤": r"\ensuremath{\leq}",
    "→": r"\ensuremath{\to}",
    "…": r"\dots{}",
    "·": r"\ensuremath{\cdot}",
    "‖": r"\ensuremath{\Vert}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "[": "{[}",  # at the start of a row it would be an argument of the line break before
    "]": "{]}",
    "\n": " ",
}


@dataclass(frozen=True)
class Grid:
    """A table of texts, which every rendering escapes.

    Attributes:
        named_by: the column that names a row.
        links: the address that a cell leads to, by row and column.
        align: a letter a column, l for words and r for numbers; empty: words, then numbers.
        best: cells in bold, by row and column.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int = 0
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    align: str = ""
    caption: str = ""
    notes: Sequence[str] = ()
    best: Collection[tuple[int, int]] = ()

    @property
    def numbers(self) -> list[bool]:
        """Of each column, whether it holds numbers."""
        return [_numeric([row[at] for row in self.rows]) for at in range(len(self.head))]

    @property
    def alignment(self) -> str:
        """A letter a column: l for words, r for numbers."""
        return self.align or "l" + "r" * (len(self.head) - 1)

    @staticmethod
    def worth(cell: str) -> float | None:
        """The number by which a cell is sorted: 41.27 of `41.27 ± 0.30 ▲`, 0.001 of `<0.001`; None if it has none."""
        number = NUMBER.match(cell)
        return None if number is None else float(number[1].replace(",", "").replace("−", "-")) * UNITS[number[2]]


def _numeric(cells: Sequence[str]) -> bool:
    values = [cell for cell in cells if cell not in EMPTY]
    return bool(values) and all((n := NUMBER.match(cell)) and AFTER.fullmatch(cell, n.end()) for cell in values)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A head and rows as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


def escape_markdown(text: str) -> str:
    """Text in which Markdown and HTML see no markup."""
    return re.sub(r"[\\`*_\[\]<>|]", r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Text as LaTeX sets it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def markdown(grid: Grid) -> str:
    """A pipe table with its title above and its notes below."""
    return render("grid.md", grid=grid, escape=escape_markdown)


def latex(grid: Grid) -> str:
    """A floating table over both columns, made narrower where it is too wide."""
    caption = ". ".join(note.rstrip(".") for note in (grid.title, grid.caption, *grid.notes) if note) + "."
    return render("grid.tex", grid=grid, escape=escape_latex, caption=caption)


def aligned(grid: Grid) -> str:
    """Plain text for a terminal: columns padded to their widest cell."""
    lines = [grid.head, *grid.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(
            cell.ljust(width) if letter == "l" else cell.rjust(width)
            for cell, width, letter in zip(line, widths, grid.alignment, strict=True)
        )
        for line in lines
    ]
    rule = "─" * len(padded[0])
    width = max(60, min(len(rule), WIDEST_NOTES))
    notes = [line for note in grid.notes for line in textwrap.wrap(note, width)]
    title = f"{grid.title} · {grid.caption}" if grid.caption else grid.title
    return "\n".join(line.rstrip() for line in [title, rule, padded[0], rule, *padded[1:], rule, *notes])
