"""How numbers are written, and tables of texts: as Markdown, and aligned for a terminal.

A number that rounds to 0 is written without a minus (`z`).
"""

import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

# p is significant below the first; below the second, it is not written out
LEVEL = 0.05
_LEAST_P = 0.001
_WIDEST_NOTES = 120


def format_number(value: float | None, decimals: int = 2) -> str:
    """Return `53.96`; a dash without a value."""
    return "–" if value is None else f"{value:z.{decimals}f}"


def format_difference(difference: float | None, decimals: int = 2) -> str:
    """Return `+1.25`; a dash without a value."""
    return "–" if difference is None else f"{difference:+z.{decimals}f}".replace("-", "−")


def format_four_decimals(value: float | None) -> str:
    """Return a value with four decimals; an empty text without a value."""
    return "" if value is None else f"{value:z.4f}"


def format_p(p: float | None) -> str:
    """Return `0.012`, `<0.001`, or `<0.05` if rounding would give 0.050; a dash if nothing was tested.

    >>> format_p(0.0496), format_p(0.0504)
    ('<0.05', '0.050')
    """
    if p is None:
        return "–"
    if p < LEVEL <= round(p, 3):
        return f"<{LEVEL}"
    return f"<{_LEAST_P}" if p < _LEAST_P else f"{p:.3f}"


def describe_p(p: float | None) -> str:
    """Return `p = 0.012` or `p < 0.001`."""
    words = format_p(p)
    return f"p < {words[1:]}" if words.startswith("<") else f"p = {words}"


def mark(change: float | None, p: float | None) -> str:
    """Return ▲ if a value is significantly above the baseline, ▼ if it is below, else an empty text."""
    if change is None or p is None or p >= LEVEL:
        return ""
    return "▲" if change > 0 else "▼"


def describe_unit(not_percent: Sequence[str], columns: int) -> str:
    """Return the unit of the values of so many columns; those of the columns `not_percent` are not in percent.

    >>> describe_unit(["DCG@10", "NumRet"], 3)
    'Values in percent (DCG@10 and NumRet as they are)'
    """
    if not not_percent:
        return "Values in percent"
    if len(not_percent) == columns:
        return "Values as the measures have them, not in percent"
    *others, last = not_percent
    names = f"{', '.join(others)} and {last}" if others else last
    return f"Values in percent ({names} as they are)"


@dataclass(frozen=True)
class PageTable:
    """Hold a table of texts, which every rendering escapes."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    named_by: int = 0  # the column that names a row
    # the address that a cell leads to, by row and column
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    align: str = ""  # a letter for each column, l: words, r: numbers; empty: words, then numbers
    caption: str = ""
    notes: Sequence[str] = ()
    best: Collection[tuple[int, int]] = ()  # cells in bold, by row and column

    @property
    def alignment(self) -> str:
        """Return a letter for each column: l for words, r for numbers."""
        return self.align or "l" + "r" * (len(self.head) - 1)


def quote_markdown(text: str) -> str:
    """Return a text in one line, in which Markdown and HTML see no markup."""
    return re.sub(r"[\\`*_\[\]<>|]", r"\\\g<0>", text.replace("\n", " "))


def write_markdown(grid: PageTable) -> str:
    """Return a pipe table with its title above and its notes below."""
    title = f"**{quote_markdown(grid.title)}**"
    if grid.caption:
        title += f" · {quote_markdown(grid.caption)}"
    rule = ["---" if letter == "l" else "---:" for letter in grid.alignment]
    lines = [title, "", _join_cells(map(quote_markdown, grid.head)), _join_cells(rule)]
    for number, row in enumerate(grid.rows):
        cells = []
        for at, text in enumerate(row):
            cell = quote_markdown(text)
            cells.append(f"**{cell}**" if (number, at) in grid.best else cell)
        lines.append(_join_cells(cells))
    for note in grid.notes:
        lines += ["", quote_markdown(note)]
    return "\n".join(lines) + "\n"


def _join_cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _pad(cell: str, width: int, letter: str) -> str:
    """Fill a cell up to so many columns of a terminal; a Chinese or Japanese letter takes two."""
    space = " " * (width - cell_len(cell))
    return cell + space if letter == "l" else space + cell


def align_text(grid: PageTable) -> str:
    """Return a table as plain text for a terminal: columns are padded to their widest cell."""
    lines = [grid.head, *grid.rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(map(_pad, line, widths, grid.alignment)) for line in lines]
    rule = "─" * cell_len(padded[0])
    width = max(60, min(len(rule), _WIDEST_NOTES))
    notes = [line for note in grid.notes for line in textwrap.wrap(note, width)]
    title = f"{grid.title} · {grid.caption}" if grid.caption else grid.title
    return "\n".join(
        line.rstrip() for line in [title, rule, padded[0], rule, *padded[1:], rule, *notes]
    )
