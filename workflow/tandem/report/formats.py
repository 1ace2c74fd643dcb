"""How a table's numbers are written: the same in CSV, Markdown, LaTeX, HTML and on a terminal."""

from collections.abc import Callable
from itertools import chain

from markupsafe import Markup

from tandem.evaluation.layouts import system_name
from tandem.report.grid import Grid, csv_text, escape_latex
from tandem.report.results import Cell, Row, Table

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
CSV_HEAD = [
    *("system", "first_stage", "dataset", "split", "measure", "printed", "value", "low", "high", "p", "stage"),
    *("name", "sd", "seeds", "verdict", "printed_dataset", "printed_split"),
]


def number(value: float | None, decimals: int = 2) -> str:
    """`53.96`; a dash without a value."""
    return "–" if value is None else f"{value:.{decimals}f}"


def ours(cell: Cell) -> str:
    """`53.96`, `53.96 ± 0.41` over several seeds."""
    return number(cell.value) + ("" if cell.sd is None else f" ± {number(cell.sd)}")


def interval(cell: Cell) -> str:
    """`[50.12, 57.80]`; nothing without a value."""
    return "" if cell.value is None else f"[{number(cell.low)}, {number(cell.high)}]"


def signed(difference: float | None) -> str:
    """`+1.25`; a dash without a value."""
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


def short_verdict(cell: Cell) -> str:
    """The verdict in few words; why a printed number is wrong stands below the table."""
    return WRONG if cell.verdict.startswith(WRONG) else cell.verdict or "–"


def against(row: Row) -> str:
    """The baseline that a row is tested against; `quoted` for a quoted one, `not made` for one without any number."""
    if row.quoted:
        return "quoted" if is_printed(row) else "not made"
    return row.against or "–"


def is_printed(row: Row) -> bool:
    """Whether a paper prints a number of a row."""
    return any(cell.printed is not None for cell in row.cells)


def table_notes(table: Table) -> list[str]:
    """The notes below a table: how it was made, and why printed numbers are wrong."""
    several = [SEEDS.format(seeds=", ".join(map(str, table.seeds)))] if len(table.seeds) > 1 else []
    absent = [
        f"{row.system} is {'only printed' if is_printed(row) else 'not made'}: {row.absent}."
        for row in table.rows
        if row.absent
    ]
    wrong = [
        f"{row.system}, {label}: {cell.verdict}."
        for row in table.rows
        for cell, label in zip(row.cells, table.names, strict=True)
        if cell.verdict.startswith(WRONG)
    ]
    return [*several, *absent, *([VERDICTS] if any(table.has_verdict) else []), *wrong]


def band_notes(table: Table) -> list[str]:
    """A line for each band behind a verdict: tolerance, source, seeds, deviations."""
    lines = []
    for row in table.rows:
        for cell in row.cells:
            band = cell.band
            if band is None or cell.verdict.startswith(WRONG):
                continue
            head, expected = "Band", "what is printed"
            if band.value is not None:
                head, expected = f"Band of {row.system}, {cell.measure}", number(band.value)
            line = f"{head}: {expected} ± {band.tolerance:g}, near ± {band.near:g}; {band.source}"
            line += f" ({band.seeds} seed{'s' * (band.seeds > 1)})" if band.seeds else ""
            line += f"; differs from the paper: {'; '.join(band.deviations)}" if band.deviations else ""
            lines.append(f"{line}.")
    return list(dict.fromkeys(lines))


def table_csv(table: Table) -> str:
    """One line per system and measure: values in percent with four decimals, p with six, empty without a value."""
    lines = []
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            printed = "" if cell.printed is None else f"{cell.printed:.{table.decimals}f}"
            numbers = [four_decimals(value) for value in (cell.value, cell.low, cell.high)]
            p = "" if cell.p is None else f"{cell.p:.6f}"
            known = [row.system, row.first_stage, cell.dataset, cell.split, cell.measure]
            seeds = " ".join(map(four_decimals, cell.seeds)) if len(table.seeds) > 1 else ""
            stage = (cell.stages or [row.stage])[0]
            more = [column.name, four_decimals(cell.sd), seeds, cell.verdict]
            lines.append([*known, printed, *numbers, p, stage, *more, column.printed_dataset, column.printed_split])
    return csv_text(CSV_HEAD, lines)


def four_decimals(value: float | None) -> str:
    """Four decimals; nothing without a value."""
    return "" if value is None else f"{value:.4f}"


def markdown_grid(table: Table) -> Grid:
    """Per measure: printed, ours with its interval, their difference, the verdict, p with the difference it tests."""

    def value(cell: Cell) -> str:
        return Markup("–" if cell.value is None else f"**{ours(cell)}**{mark(cell.p)} {interval(cell)}")

    def p(cell: Cell) -> str:
        return Markup(probability(cell.p) + ("" if cell.change is None else f" ({signed(cell.change)})"))

    head, rows = _columns(table, value, p, deltas=True, heads=(("{} printed", "ours"), "{}"))
    notes = [f"{LEGEND} {BRACKETS} {CHANGE}", *([table.note.strip()] if table.note else [])]
    notes += [*table_notes(table), *band_notes(table)]
    notes += [f"Source of the printed values: {table.paper.citation.strip()}."] if table.paper else []
    return Grid(
        table.heading,
        [Markup(title) for title in ["System", "re-ranks", *head, "p against"]],
        [[row.system, row.first_stage, *cells, against(row)] for row, cells in zip(table.rows, rows, strict=True)],
        align=f"ll{'r' * len(head)}l",
        caption=table.caption,
        notes=notes,
    )


def latex_grid(table: Table) -> Grid:
    """A group of columns per measure under its printed name."""

    def value(cell: Cell) -> str:
        text = escape_latex(ours(cell) + mark(cell.p))
        return Markup(text if cell.value is None else f"{text} {{\\scriptsize {interval(cell)}}}")

    head, rows = _columns(table, value, _p, deltas=True, heads=(("printed", "ours"), "ours"), minus="${}$")
    widths = [2 + 2 * printed + judged for printed, judged in zip(table.has_printed, table.has_verdict, strict=True)]
    notes = [LEGEND, BRACKETS, table.note.strip(), *table_notes(table), *band_notes(table)]
    return Grid(
        table.heading,
        ["System", "re-ranks", *head, "p against"],
        [
            [row.system, row.first_stage or "–", *cells, against(row)]
            for row, cells in zip(table.rows, rows, strict=True)
        ],
        align=f"ll{'r' * len(head)}l",
        caption=table.caption,
        notes=notes,
        groups=list(zip(table.names, widths, strict=True)),
    )


def text_grid(table: Table) -> Grid:
    """A line per system; per measure the printed value, if any, ours with its mark, and p; rows named by number."""

    def value(cell: Cell) -> str:
        return f"{ours(cell)}{mark(cell.p) or ' '}"

    # The blank in the heads leaves room for a mark.
    head, rows = _columns(table, value, _p, deltas=False, heads=(("{} printed", "ours "), "{} "))
    numbers = {system_name(row.id): f"#{n}" for n, row in enumerate(table.rows, start=1)}
    lines = []
    for n, (row, cells) in enumerate(zip(table.rows, rows, strict=True), start=1):
        first_stage = numbers.get(row.first_stage, row.first_stage) or "–"
        lines.append([str(n), row.system, first_stage, *cells, numbers.get(row.against) or against(row)])
    return Grid(
        table.heading,
        ["#", "System", "re-ranks", *head, "p against"],
        lines,
        align=f"rll{'r' * len(head)}l",
        caption=table.caption,
        notes=[LEGEND, *table_notes(table), *band_notes(table)],
    )


def _p(cell: Cell) -> str:
    return probability(cell.p)


def _columns(
    table: Table,
    value: Callable[[Cell], str],
    p: Callable[[Cell], str],
    deltas: bool,
    heads: tuple[tuple[str, str], str],
    minus: str = "{}",
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of all measures; `value` and `p` write a cell, `minus` sets a signed number.

    `deltas` adds a column of ours minus printed. `heads` are those of the printed and our value beside it, and that of
    our value alone; `{}` is the measure's name.
    """

    def cells(row: Row) -> list[str]:
        words = []
        for cell, printed, judged in zip(row.cells, table.has_printed, table.has_verdict, strict=True):
            difference = delta(cell)
            words += [number(cell.printed, table.decimals)] if printed else []
            words += [value(cell)]
            difference = difference if difference == "–" else Markup(minus.format(difference))
            words += [difference] if printed and deltas else []
            words += [*([short_verdict(cell)] if judged else []), p(cell)]
        return words

    def titles(name: str, printed: bool, judged: bool) -> list[str]:
        both, alone = heads
        own = [*(head.format(name) for head in both), *(["Δ"] if deltas else [])] if printed else [alone.format(name)]
        return [*own, *(["verdict"] if judged else []), "p"]

    columns = zip(table.names, table.has_printed, table.has_verdict, strict=True)
    return list(chain.from_iterable(titles(*column) for column in columns)), [cells(row) for row in table.rows]
