"""How numbers are worded for people: the same in Markdown, LaTeX, HTML and on a terminal."""

from tandem.reporting.results import Cell, Row, Table

LEGEND = (
    "Values in percent. p: paired two-sided randomisation test against the row's baseline, Holm-corrected over the "
    "table's comparisons per measure; † p < 0.05, ‡ p < 0.01, better or worse."
)
BRACKETS = "In brackets the 95 % bootstrap interval over queries."
CHANGE = "In parentheses the difference from that baseline."
SEEDS = "Mean ± standard deviation over the seeds {seeds}; intervals and tests on per-query means over them."
VERDICTS = (
    "Verdict: match within the band's tolerance, near, or off; none where another dataset stands in without a band."
)
WRONG = "printed number is wrong"  # how a verdict on such a number begins


def number(value: float | None, decimals: int = 2) -> str:
    """`53.96`; a dash where there is none."""
    return "–" if value is None else f"{value:.{decimals}f}"


def ours(cell: Cell) -> str:
    """`53.96`, `53.96 ± 0.41` over several seeds."""
    return number(cell.value) + ("" if cell.sd is None else f" ± {number(cell.sd)}")


def interval(cell: Cell) -> str:
    """`[50.12, 57.80]`; nothing where there is no value."""
    return "" if cell.value is None else f"[{number(cell.low)}, {number(cell.high)}]"


def signed(difference: float | None) -> str:
    """`+1.25`; a dash where there is none."""
    return "–" if difference is None else f"{difference:+.2f}"


def delta(cell: Cell) -> str:
    """Ours minus printed."""
    return signed(None if cell.printed is None or cell.value is None else cell.value - cell.printed)


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


def verdict(cell: Cell) -> str:
    """The verdict in few words; why a printed number is wrong stands below the table."""
    return WRONG if cell.verdict.startswith(WRONG) else cell.verdict or "–"


def heading(table: Table) -> str:
    """`Table 4: First-stage retrieval`, or the title alone."""
    return f"{table.paper['table']}: {table.title}" if table.paper else table.title


def against(row: Row) -> str:
    """What a row is tested against; a quoted one says that it is."""
    return "quoted" if row.quoted else row.against or "–"


def notes(table: Table) -> list[str]:
    """What stands below a table: how it was made, and what is wrong with printed numbers."""
    several = [SEEDS.format(seeds=", ".join(map(str, table.seeds)))] if len(table.seeds) > 1 else []
    absent = [f"{row.system} is only printed: {row.absent}." for row in table.rows if row.absent]
    return [*several, *absent, *([VERDICTS] if any(table.has_verdict) else []), *_wrong(table)]


def _wrong(table: Table) -> list[str]:
    """A line for each printed number that is known to be wrong."""
    return [
        f"{row.system}, {label}: {cell.verdict}."
        for row in table.rows
        for cell, label in zip(row.cells, table.names, strict=True)
        if cell.verdict.startswith(WRONG)
    ]


def bands(table: Table) -> list[str]:
    """A line for each band that verdicts went by: tolerance, source, seeds, deviations."""
    lines = []
    for row in table.rows:
        for cell in row.cells:
            if cell.band is None or cell.verdict.startswith(WRONG):
                continue
            told = cell.band
            of = "what is printed" if told["value"] is None else number(told["value"])
            line = f"Band: {of} ± {told['tolerance']:g}, near ± {told['near']:g}; {told['source']}"
            line += f" ({told['seeds']} seed{'s' * (told['seeds'] > 1)})" if told["seeds"] else ""
            if told["value"] is not None:
                line = line.replace("Band:", f"Band of {row.system}, {cell.measure}:", 1)
            if told["deviations"]:
                line += f"; differs from the paper: {'; '.join(told['deviations'])}"
            lines.append(line + ".")
    return list(dict.fromkeys(lines))
