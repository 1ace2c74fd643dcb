"""How a table's numbers are written: the same in every format and on a terminal."""

from dataclasses import asdict

from tandem.config.table_layouts import DEVIATIONS, Band
from tandem.evaluation.layouts import name_system
from tandem.report.grids import (
    PageTable,
    describe_p,
    describe_unit,
    format_difference,
    format_four_decimals,
    format_number,
    format_p,
    mark,
)
from tandem.report.results import Cell, Costs, FilledRow, Table
from tandem.store.files import csv_text

_LEGEND = (
    "{unit}, the best{alike} in bold. ▲ above and ▼ below the row's baseline: p < 0.05 in a paired two-sided test, "
    "Holm-corrected over the table's comparisons of a column; without a mark no difference is shown."
)
_BRACKETS = "In brackets the 95 % bootstrap interval over queries."
MARGIN = (
    "± behind `no difference shown`: half of the difference's 95 % interval, at least the difference itself; one of "
    "that size may have been missed."
)
_TEST = "The test is by randomisation."
_SEEDS = (
    "Mean ± standard deviation over the seeds {seeds}; the intervals are of the per-query means over them. p is the "
    "larger of a randomisation test on these means and a test with queries and seeds as random factors."
)
_VERDICTS = (
    "Verdict on the printed number: match within the band's tolerance, near, or off; none where another dataset stands "
    "in."
)
_WRONG_VERDICT = "printed number is wrong"  # how a verdict on such a number begins
ORDERS = (
    "p: two-sided, Holm-corrected over the orders of a column, whatever the rows' baselines are; "
    "in brackets half of the difference's 95 % interval, at least the difference itself."
)
_CSV_HEAD = [
    "system",
    "first_stage",
    "dataset",
    "split",
    "measure",
    "printed",
    "value",
    "low",
    "high",
    "change",
    "p",
    "mark",
    "stage",
    "name",
    "sd",
    "seeds",
    "verdict",
    "printed_dataset",
    "printed_split",
    "conclusion",
    "margin",
    "before",
]


COST_HEAD = ["index bytes", "ms a query", "training s"]
COST_NOTE = (
    "Index: bytes of what is searched. ms a query: wall time of encoding, searching and re-ranking all queries "
    "together, loading included, by the number of those scored; pairs that another system had scored before cost "
    "nothing. Training: "
    "seconds of every training that the system descends from, its teachers, judges and earlier models included. "
    "A dash: not run, or something behind the number was deleted since."
)


def format_cell(cell: Cell) -> str:
    """Return `53.96`, or `53.96 ± 0.41` over several seeds."""
    value = format_number(cell.value)
    return value if cell.sd is None else f"{value} ± {format_number(cell.sd)}"


def format_delta(cell: Cell) -> str:
    """Return ours minus printed; a dash if the printed number is of another collection."""
    if cell.stands_in or cell.printed is None or cell.value is None:
        return format_difference(None)
    return format_difference(cell.value - cell.printed)


def draw_conclusion(cell: Cell) -> str:
    """Return what may be concluded: `above` or `below` the baseline, `no difference shown (±1.90)`, or nothing.

    It is nothing without a test. If a corrected test shows no difference, its interval contains 0, so that half of it
    is at least the difference itself.
    """
    if cell.change is None or cell.p is None:
        return ""
    sign = mark(cell.change, cell.p)
    if sign:
        return "above" if sign == "▲" else "below"
    half = max(cell.margin or 0.0, abs(cell.change))
    return f"no difference shown (±{format_number(half)})"


def reduce_verdict(cell: Cell) -> str:
    """Return the verdict in few words; the notes below the table state why a printed number is wrong."""
    if cell.verdict.startswith(_WRONG_VERDICT):
        return _WRONG_VERDICT
    return cell.verdict or "–"


def name_baseline(row: FilledRow) -> str:
    """Return the baseline that a row is tested against.

    Without one, return why there is no test: `quoted`, `not made`, `same run as …`.
    """
    if row.quoted:
        return "quoted" if is_printed(row) else "not made"
    if row.against:
        return row.against
    return f"same run as {row.same_as}" if row.same_as else "–"


def is_printed(row: FilledRow) -> bool:
    """Return whether a paper prints a number of a row."""
    return any(cell.printed is not None for cell in row.cells)


def describe_values(table: Table) -> str:
    """Return the legend of a table's values and marks."""
    scored = {(label, cell.scored_by) for _, label, cell in table.entries if cell.value is not None}
    columns = {label for label, _ in scored}
    alike = " of the same queries and labels" if len(scored) > len(columns) else ""
    unit = describe_unit(table.not_percent, len(table.columns))
    return _LEGEND.format(unit=unit, alike=alike)


def is_best(table: Table, row: FilledRow, at: int) -> bool:
    """Return whether a row has the highest value of a column, of the same queries and labels, and others are lower."""
    own = row.cells[at]
    alike = (cell for cell in table.column(at) if cell.scored_by == own.scored_by)
    values = {cell.value for cell in alike if cell.value is not None}
    return len(values) > 1 and own.value == max(values)


def list_table_notes(table: Table) -> list[str]:
    """Return the notes below a table: how it was made, why printed numbers are wrong, and what the stages warn of."""
    notes = []
    if table.note.strip():
        notes.append(table.note.strip())
    if table.has_costs:
        notes.append(COST_NOTE)
    if len(table.seeds) > 1:
        notes.append(_SEEDS.format(seeds=", ".join(map(str, table.seeds))))
    else:
        notes.append(_TEST)
    for row in table.rows:
        name = name_system(row.id)
        if row.absent:
            unmade = "only printed" if is_printed(row) else "not made"
            what = "not measured everywhere" if row.folder else unmade
            notes.append(f"{name} is {what}: {row.absent}.")
        if row.same_as:
            notes.append(
                f"{name} is the same run as {row.same_as}: the configuration does not tell them apart."
            )
    entries = table.entries
    if any(cell.verdict for _, _, cell in entries):
        notes.append(_VERDICTS)
    for row, _, cell in entries:
        if cell.earlier and cell.before.startswith("not"):
            notes.append(_describe_earlier(row, cell, cell.earlier))
    for row, label, cell in entries:
        if cell.verdict.startswith(_WRONG_VERDICT):
            notes.append(f"{name_system(row.id)}, {label}: {cell.verdict}.")
    notes += [f"{line}." for line in table.notes]
    notes += [f"Warning: {line}." for line in table.warnings]
    return notes


def list_band_notes(table: Table) -> list[str]:
    """Return a line for each band behind a verdict, and for each value that was measured here before."""
    lines = []
    for row, _, cell in table.entries:
        if cell.band is not None and not cell.verdict.startswith(_WRONG_VERDICT):
            lines.append(_describe_band(row, cell, cell.band))
        if cell.earlier is not None and not cell.before.startswith("not"):
            lines.append(_describe_earlier(row, cell, cell.earlier))
    return list(dict.fromkeys(lines))


def _describe_band(row: FilledRow, cell: Cell, band: Band) -> str:
    """Return a band's tolerance, source and deviations from the paper."""
    head = "Band"
    expected = "what is printed"
    if band.value is not None:
        head = f"Band of {name_system(row.id)}, {cell.measure}"
        expected = format_number(band.value)
    line = f"{head}: {expected} ± {band.width:g}, near ± {band.near or 0.0:g}; {band.source}"
    return (
        f"{line}; differs from the paper: {'; '.join(band.deviations)}."
        if band.deviations
        else f"{line}."
    )


def _describe_earlier(row: FilledRow, cell: Cell, band: Band) -> str:
    """Return the note of a value that was measured before.

    `As measured before: DE, RR@10 44.21, before 44.30; up to 1.68 apart is the same (3 sd of 3 measurements, …).`
    """
    deviations = f"{DEVIATIONS:g} sd of {band.seeds} measurements, " if band.seeds else ""
    values = f"{cell.measure} {format_number(cell.value)}, before {format_number(band.value)}"
    tolerance = f"up to {band.width:.2f} apart is the same ({deviations}{band.source})"
    return f"{cell.before.capitalize()}: {name_system(row.id)}, {values}; {tolerance}."


def describe_source(table: Table) -> list[str]:
    """Return where the printed values come from."""
    return (
        [f"Printed values: {table.paper.citation.strip()}, {table.paper.table}."]
        if table.paper
        else []
    )


def write_csv(table: Table) -> str:
    """Return one line per system and measure: values with four decimals, p with six, empty without a value.

    Shares are in percent, gains and counts as they are. A row's costs follow its measures, one line for each.
    """
    lines: list[dict[str, object]] = []
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            seeds = " ".join(map(format_four_decimals, cell.seeds)) if len(table.seeds) > 1 else ""
            lines.append(
                {
                    "system": row.system,
                    "first_stage": row.first_stage,
                    "dataset": cell.dataset,
                    "split": cell.split,
                    "measure": cell.measure,
                    "printed": "" if cell.printed is None else f"{cell.printed:.{table.decimals}f}",
                    "value": format_four_decimals(cell.value),
                    "low": format_four_decimals(cell.low),
                    "high": format_four_decimals(cell.high),
                    "change": format_four_decimals(cell.change),
                    "p": "" if cell.p is None else f"{cell.p:.6f}",
                    "mark": mark(cell.change, cell.p),
                    "stage": cell.stages[0] if cell.stages else row.stage,
                    "name": column.name,
                    "sd": format_four_decimals(cell.sd),
                    "seeds": seeds,
                    "verdict": cell.verdict,
                    "printed_dataset": column.printed_dataset,
                    "printed_split": column.printed_split,
                    "conclusion": draw_conclusion(cell).split(" (")[0],
                    "margin": format_four_decimals(cell.margin),
                    "before": cell.before,
                }
            )
        if row.costs is not None:
            for name, value in asdict(row.costs).items():
                lines.append(
                    {
                        "system": row.system,
                        "first_stage": row.first_stage,
                        "measure": name,
                        "value": value,
                    }
                )
    return csv_text(_CSV_HEAD, ([line.get(name, "") for name in _CSV_HEAD] for line in lines))


def make_table_grid(table: Table, terminal: bool = False) -> PageTable:
    """Return a table: per measure ours with mark and interval, the printed value, the difference, verdict and test.

    On a terminal, intervals and differences are left out, tests are their p, and rows are named by their number.
    """
    numbers: dict[str, str] = {}
    columns: list[tuple[str, list[str]]] = []
    if terminal:
        numbers = {name_system(row.id): f"#{number}" for number, row in enumerate(table.rows, 1)}
        columns.append(("#", [str(number) for number, _ in enumerate(table.rows, 1)]))
    columns.append(("System", [row.system for row in table.rows]))
    columns.append(
        ("re-ranks", [numbers.get(row.first_stage, row.first_stage) or "–" for row in table.rows])
    )
    if any(row.family for row in table.rows):
        columns.append(("family", [row.family or "–" for row in table.rows]))
    word_columns = len(columns)

    best = []  # (row, column) of the highest values
    for measure in range(len(table.columns)):
        best += [
            (line, len(columns))
            for line, row in enumerate(table.rows)
            if is_best(table, row, measure)
        ]
        columns += _format_measure(table, measure, terminal)
    if table.has_costs:
        costs = zip(*(format_costs(row.costs) for row in table.rows), strict=True)
        columns += zip(COST_HEAD, map(list, costs), strict=True)
    number_columns = len(columns) - word_columns
    columns.append(
        ("p against", [numbers.get(row.against) or name_baseline(row) for row in table.rows])
    )

    align = "l" * word_columns
    if terminal:  # the first column has the rows' numbers
        align = "r" + align[1:]
    align += "r" * number_columns + "l"

    notes = [describe_values(table)]
    if not terminal:
        notes += [_BRACKETS, MARGIN]
    notes += list_table_notes(table)
    notes += list_band_notes(table)
    notes += describe_source(table)
    return PageTable(
        table.heading,
        [title for title, _ in columns],
        [list(row) for row in zip(*(cells for _, cells in columns), strict=True)],
        align=align,
        caption=table.caption,
        notes=notes,
        best=frozenset(best),
    )


def _format_measure(table: Table, at: int, terminal: bool) -> list[tuple[str, list[str]]]:
    """Return headings and cells of one measure: the value, columns in which any row has a text, and the test."""
    cells = table.column(at)
    columns = [(table.names[at], [_format_marked(cell, terminal) for cell in cells])]
    between = {
        "printed": [format_number(cell.printed, table.decimals) for cell in cells],
        "Δ": [format_difference(None) if terminal else format_delta(cell) for cell in cells],
        "verdict": [reduce_verdict(cell) for cell in cells],
    }
    for title, texts in between.items():
        if set(texts) - {"–"}:  # any row has a value
            columns.append((title, texts))
    if terminal:
        columns.append(("p", [format_p(cell.p) for cell in cells]))
    else:
        columns.append(("difference", [format_comparison(cell) for cell in cells]))
    return columns


def _format_marked(cell: Cell, terminal: bool) -> str:
    """Return `53.96 ▲ [50.12, 57.80]`; on a terminal without the interval, so that numbers stand below one another."""
    sign = mark(cell.change, cell.p)
    value = f"{format_cell(cell)} {sign}"
    if terminal:
        return value if sign else f"{value} "
    if cell.value is None:
        return value.rstrip()
    return f"{value.rstrip()} [{format_number(cell.low)}, {format_number(cell.high)}]"


def format_comparison(cell: Cell, above: str = "above", below: str = "below") -> str:
    """Return `above: +8.15, p = 0.045`, `no difference shown (±7.31): +5.72, p = 0.089`; a dash without a test."""
    conclusion = draw_conclusion(cell)
    if not conclusion:
        return "–"
    words = {"above": above, "below": below}.get(conclusion, conclusion)
    return f"{words}: {format_difference(cell.change)}, {describe_p(cell.p)}"


def format_costs(costs: Costs | None) -> list[str]:
    """Return costs in the columns `COST_HEAD`; dashes without any."""
    if costs is None:
        return ["–"] * len(COST_HEAD)
    return [
        f"{costs.index_bytes:,}",
        f"{costs.ms_per_query:,.1f}",
        f"{costs.training_seconds:,.0f}",
    ]


def make_orders_grid(table: Table) -> PageTable | None:
    """Return a line for each order: whether it holds, by measure; None for a table without any."""
    if not table.orders:
        return None
    rows = []
    for order in table.orders:
        outcomes = [
            format_comparison(cell, above="holds", below="the other way round")
            for cell in order.cells
        ]
        rows.append([order.claim, order.higher, order.lower, *outcomes])
    head = ["order", "higher", "lower", *table.names]
    return PageTable(f"{table.heading}: orders", head, rows, align="l" * len(head), notes=[ORDERS])
