"""How numbers are worded for people: the same in Markdown, LaTeX, HTML and on a terminal."""

from tandem.reporting.results import Cell, Table

LEGEND = (
    "Values in percent. p: paired two-sided randomisation test against the row's baseline, Holm-corrected over the "
    "table's comparisons per measure; † p < 0.05, ‡ p < 0.01, better or worse."
)
BRACKETS = "In brackets the 95 % bootstrap interval over queries."
CHANGE = "In parentheses the difference from that baseline."


def number(value: float | None, decimals: int = 2) -> str:
    """`53.96`; a dash where there is none."""
    return "–" if value is None else f"{value:.{decimals}f}"


def interval(cell: Cell) -> str:
    """`[50.12, 57.80]`."""
    return f"[{number(cell.low)}, {number(cell.high)}]"


def signed(difference: float | None) -> str:
    """`+1.25`; a dash where there is none."""
    return "–" if difference is None else f"{difference:+.2f}"


def delta(cell: Cell) -> str:
    """Ours minus printed."""
    return signed(None if cell.printed is None else cell.value - cell.printed)


def probability(p: float | None) -> str:
    """`0.012`, `<0.001`; a dash where nothing was tested."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def mark(p: float | None) -> str:
    """‡ for p < 0.01, † for p < 0.05."""
    if p is None or p >= 0.05:
        return ""
    return "‡" if p < 0.01 else "†"


def heading(table: Table) -> str:
    """`Table 4: First-stage retrieval`, or the title alone."""
    return f"{table.paper['table']}: {table.title}" if table.paper else table.title
