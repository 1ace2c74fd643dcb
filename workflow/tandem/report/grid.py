"""A table of texts, and its renderings: CSV, Markdown, LaTeX, HTML and aligned text."""

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import jinja2
from markupsafe import Markup

NUMBER = re.compile(r"<?([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)([KM]?)")
# What may follow a number in its cell: a deviation, a mark, an interval, a share, a unit.
AFTER = re.compile(r"( ± \d[\d.]*)?[†‡]?( \[[^\]]*\])?( · [\d.]+)?( %)?")
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
    "†": r"\ensuremath{^{\dagger}}",
    "‡": r"\ensuremath{^{\ddagger}}",
    "Δ": r"\ensuremath{\Delta}",
    "–": "--",
    "−": "--",
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
    """A table. Cells are texts, which every rendering escapes; a cell of type `Markup` is in its format already.

    Attributes:
        named_by: the column that names a row.
        links: the address that a cell leads to, by row and column.
        align: a letter a column, l for words and r for numbers; empty: words, then numbers.
        groups: in LaTeX, titles over several of the columns after the first words: title and number of columns.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int = 0
    links: dict[tuple[int, int], str] | None = None
    align: str = ""
    caption: str = ""
    notes: Sequence[str] = ()
    groups: Sequence[tuple[str, int]] = ()

    @cached_property
    def numbers(self) -> list[bool]:
        """Of each column, whether it holds numbers."""
        return [_numeric([row[at] for row in self.rows]) for at in range(len(self.head))]

    @property
    def alignment(self) -> str:
        """A letter a column: l for words, r for numbers."""
        return self.align or "l" + "r" * (len(self.head) - 1)

    @property
    def rules(self) -> list[str]:
        """The line below the head in Markdown, which aligns the columns."""
        return ["---" if letter == "l" else "---:" for letter in self.alignment]

    def link(self, row: int, column: int) -> str:
        """The address that a cell leads to; empty if it has none."""
        return (self.links or {}).get((row, column), "")


def worth(cell: str) -> float | None:
    """The number by which a cell is sorted: 41.27 of `41.27 ± 0.30†`, 0.001 of `<0.001`; None if it has none."""
    number = NUMBER.match(cell)
    return None if number is None else float(number[1].replace(",", "")) * UNITS[number[2]]


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
    if isinstance(text, Markup):
        return text
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text


def escape_latex(text: str) -> str:
    """Text as LaTeX sets it."""
    return text if isinstance(text, Markup) else "".join(SPECIAL.get(character, character) for character in text)


@cache
def _templates() -> jinja2.Environment:
    """Templates of formats that are not HTML."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "assets"),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters.update(md=escape_markdown, tex=escape_latex)
    return env


def markdown(grid: Grid) -> str:
    """A pipe table with its title above and its notes below."""
    return _templates().get_template("grid.md").render(grid=grid)


def latex(grid: Grid) -> str:
    """A floating table over both columns; needs the package booktabs, with groups graphicx too."""
    words = len(grid.alignment) - len(grid.alignment.lstrip("l"))
    starts = list(accumulate((columns for _, columns in grid.groups), initial=words + 1))
    groups = [rf"\multicolumn{{{columns}}}{{c}}{{{escape_latex(title)}}}" for title, columns in grid.groups]
    rules = [rf"\cmidrule(lr){{{start}-{after - 1}}}" for start, after in pairwise(starts)]
    caption = ". ".join(note.rstrip(".") for note in (grid.title, grid.caption, *grid.notes) if note) + "."
    return (
        _templates()
        .get_template("grid.tex")
        .render(grid=grid, caption=caption, groups=f" {'& ' * words}{' & '.join(groups)} &", rules=" ".join(rules))
    )


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
