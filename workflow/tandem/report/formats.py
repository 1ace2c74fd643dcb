"""How a table's numbers are written: the same in CSV, Markdown, LaTeX, HTML and on a terminal."""

import sys
from dataclasses import asdict

from tandem.config.tables import DEVIATIONS, Band
from tandem.evaluation.layouts import system_name
from tandem.report.page import LEVEL, PageTable, environment, format_p, four_decimals, mark, number, p_text, signed
from tandem.report.results import Cell, FilledRow, Table
from tandem.report.scored import COST_HEAD, COST_NOTE, cost_cells
from tandem.store.files import csv_text

environment().globals["formats"] = sys.modules[__name__]  # templates of tables call these functions
TABLE_LEGEND = (
    "Values in percent, the best in bold. ▲ above and ▼ below the row's baseline: p < 0.05 in a paired two-sided test, "
    "Holm-corrected over the table's comparisons per measure; without a mark no difference is shown."
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
    "p: two-sided, Holm-corrected over the orders of a measure, whatever the rows' baselines are; "
    "in brackets half of the difference's 95 % interval, at least the difference itself."
)
_CSV_HEAD = [
    *("system", "first_stage", "dataset", "split", "measure", "printed", "value", "low", "high", "change", "p", "mark"),
    *("stage", "name", "sd", "seeds", "verdict", "printed_dataset", "printed_split", "conclusion", "margin", "before"),
]


def ours(cell: Cell) -> str:
    """`53.96`, `53.96 ± 0.41` over several seeds."""
    return number(cell.value) + ("" if cell.sd is None else f" ± {number(cell.sd)}")


def delta(cell: Cell) -> str:
    """Ours minus printed; a dash where the printed number is of another collection."""
    if cell.stands_in or cell.printed is None or cell.value is None:
        return signed(None)
    return signed(cell.value - cell.printed)


def conclusion(cell: Cell) -> str:
    """What may be concluded: `above` or `below` the baseline, `no difference shown (±1.90)`; empty without a test.

    The interval of a corrected test that shows nothing holds 0: its half is the difference itself at least.
    """
    if cell.change is None or cell.p is None:
        return ""
    if sign := mark(cell.change, cell.p):
        return "above" if sign == "▲" else "below"
    return f"no difference shown (±{number(max(cell.margin or 0.0, abs(cell.change)))})"


def short_verdict(cell: Cell) -> str:
    """The verdict in few words; why a printed number is wrong stands below the table."""
    return _WRONG_VERDICT if cell.verdict.startswith(_WRONG_VERDICT) else cell.verdict or "–"


def against(row: FilledRow) -> str:
    """The baseline that a row is tested against; else why there is no test: `quoted`, `not made`, `same run as …`."""
    if row.quoted:
        return "quoted" if is_printed(row) else "not made"
    return row.against or (f"same run as {row.same_as}" if row.same_as else "–")


def is_printed(row: FilledRow) -> bool:
    """Whether a paper prints a number of a row."""
    return any(cell.printed is not None for cell in row.cells)


def is_best(table: Table, row: FilledRow, at: int) -> bool:
    """Whether a row has the highest value of a column that has others."""
    values = {cell.value for cell in table.column(at) if cell.value is not None}
    return len(values) > 1 and row.cells[at].value == max(values)


def ranked(table: Table) -> list[FilledRow]:
    """The rows in falling order of the first measure; rows without a value come last."""
    return sorted(table.rows, key=lambda row: -1.0 if row.cells[0].value is None else row.cells[0].value, reverse=True)


def anchor(table: Table, row: FilledRow) -> str:
    """The id of what is behind a row; two rows may show one run."""
    return f"row-{table.rows.index(row) + 1}"


def bar(cell: Cell, column: list[Cell]) -> str:
    """Style of the bar of an interval: its ends and its value, in percent of the range of all of a column."""
    lows, highs = [c.low for c in column if c.low is not None], [c.high for c in column if c.high is not None]
    low, width = min(lows), max(highs) - min(lows) or 1.0
    ends = zip(("low", "at", "high"), (cell.low, cell.value, cell.high), strict=True)
    return "; ".join(f"--{name}: {100 * (end - low) / width:.1f}%" for name, end in ends if end is not None)


def answer_question(table: Table) -> list[str]:
    """What a table says, in sentences: the highest value, then the systems that are worse than their baselines."""
    if (best := table.best) is None:
        return []
    sentence = f"{best.system} has the highest {best.measure}: {number(best.value, 1)}"
    if best.gain is not None:
        surely = "" if best.p is not None and best.p < LEVEL else ", which is not significant"
        sentence += f", {signed(best.gain, 1)} over {best.over}{surely} ({p_text(best.p)})"
    worse = hurt(table)
    unsure = [row for row in table.rows if (row.cells[0].change or 0.0) < 0 and row not in worse]
    sentences = [f"{sentence}."]
    if worse:
        sentences.append(f"{losses(worse)} {'hurt' if len(worse) > 1 else 'hurts'}.")
    if unsure:
        sentences.append(f"{losses(unsure)} {'are' if len(unsure) > 1 else 'is'} lower, but not significantly.")
    return sentences


def hurt(table: Table) -> list[FilledRow]:
    """The rows that are significantly worse than their baselines by the first measure."""
    return [row for row in table.rows if mark(row.cells[0].change, row.cells[0].p) == "▼"]


def losses(rows: list[FilledRow]) -> str:
    """`CE on BM25 (−2.9 against BM25, p = 0.012) and DE (…)`."""
    texts = [
        f"{system_name(row.id)} ({signed(row.cells[0].change, 1)} against {row.against}, {p_text(row.cells[0].p)})"
        for row in rows
    ]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def table_notes(table: Table) -> list[str]:
    """The notes below a table: how it was made, why printed numbers are wrong, and what the stages warn of."""
    notes = [table.note.strip()] if table.note.strip() else []
    notes += [COST_NOTE] if table.has_costs else []
    notes.append(_SEEDS.format(seeds=", ".join(map(str, table.seeds))) if len(table.seeds) > 1 else _TEST)
    for row in table.rows:
        if row.absent:
            notes.append(f"{row.system} is {'only printed' if is_printed(row) else 'not made'}: {row.absent}.")
        if row.same_as:
            name = system_name(row.id)
            notes.append(f"{name} is the same run as {row.same_as}: the configuration does not tell them apart.")
    entries = table.entries
    if any(cell.verdict for _, _, cell in entries):
        notes.append(_VERDICTS)
    earlier = [(row, cell, cell.earlier) for row, _, cell in entries if cell.before.startswith("not")]
    notes += [_earlier_note(row, cell, band) for row, cell, band in earlier if band]
    wrong = [(row, label, cell) for row, label, cell in entries if cell.verdict.startswith(_WRONG_VERDICT)]
    notes += [f"{row.system}, {label}: {cell.verdict}." for row, label, cell in wrong]
    return [*notes, *(f"{line}." for line in table.notes), *(f"Warning: {line}." for line in table.warnings)]


def band_notes(table: Table) -> list[str]:
    """A line for each band behind a verdict, and for each value that was measured here before."""
    lines = []
    for row, _, cell in table.entries:
        if cell.band is not None and not cell.verdict.startswith(_WRONG_VERDICT):
            lines.append(_band_note(row, cell, cell.band))
        if cell.earlier is not None and not cell.before.startswith("not"):
            lines.append(_earlier_note(row, cell, cell.earlier))
    return list(dict.fromkeys(lines))


def _band_note(row: FilledRow, cell: Cell, band: Band) -> str:
    """A band's tolerance, source and deviations from the paper."""
    head, expected = "Band", "what is printed"
    if band.value is not None:
        head, expected = f"Band of {row.system}, {cell.measure}", number(band.value)
    line = f"{head}: {expected} ± {band.width:g}, near ± {band.near or 0.0:g}; {band.source}"
    return f"{line}; differs from the paper: {'; '.join(band.deviations)}." if band.deviations else f"{line}."


def _earlier_note(row: FilledRow, cell: Cell, band: Band) -> str:
    """`As measured before: DE, RR@10 44.21, before 44.30; up to 1.68 apart is the same (3 sd of 3 measurements, …).`"""
    deviations = f"{DEVIATIONS:g} sd of {band.seeds} measurements, " if band.seeds else ""
    numbers = (
        f"{cell.measure} {number(cell.value)}, before {number(band.value)}; up to {band.width:.2f} apart is the same"
    )
    return f"{cell.before.capitalize()}: {system_name(row.id)}, {numbers} ({deviations}{band.source})."


def source_note(table: Table) -> list[str]:
    """Where the printed values come from."""
    return [f"Printed values: {table.paper.citation.strip()}, {table.paper.table}."] if table.paper else []


def table_csv(table: Table) -> str:
    """One line per system and measure: percent with four decimals, p with six, empty without a value; then costs."""
    lines = []
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            line = [row.system, row.first_stage, cell.dataset, cell.split, cell.measure]
            line.append("" if cell.printed is None else f"{cell.printed:.{table.decimals}f}")
            line += [four_decimals(value) for value in (cell.value, cell.low, cell.high, cell.change)]
            line += ["" if cell.p is None else f"{cell.p:.6f}", mark(cell.change, cell.p)]
            line += [(cell.stages or [row.stage])[0], column.name, four_decimals(cell.sd)]
            line += [" ".join(map(four_decimals, cell.seeds)) if len(table.seeds) > 1 else "", cell.verdict]
            line += [column.printed_dataset, column.printed_split, conclusion(cell).split(" (")[0]]
            lines.append([*line, four_decimals(cell.margin), cell.before])
        if row.costs is not None:
            costs = asdict(row.costs).items()
            lines += [[row.system, row.first_stage, "", "", name, "", value, *[""] * 15] for name, value in costs]
    return csv_text(_CSV_HEAD, lines)


def table_grid(table: Table, terminal: bool = False) -> PageTable:
    """Per measure: ours with mark and interval, the printed value and the difference, the verdict, what the test shows.

    On a terminal, intervals and differences are left out, tests are their p, and rows are named by their number.
    """
    numbers = {system_name(row.id): f"#{at}" for at, row in enumerate(table.rows, 1)} if terminal else {}
    columns = [("#", [str(at) for at, _ in enumerate(table.rows, 1)])] if terminal else []
    columns.append(("System", [row.system for row in table.rows]))
    columns.append(("re-ranks", [numbers.get(row.first_stage, row.first_stage) or "–" for row in table.rows]))
    if any(row.family for row in table.rows):
        columns.append(("family", [row.family or "–" for row in table.rows]))
    words, best = len(columns), []
    for at in range(len(table.columns)):
        best += [(line, len(columns)) for line, row in enumerate(table.rows) if is_best(table, row, at)]
        columns += _measured(table, at, terminal)
    if table.has_costs:
        costs = zip(*(cost_cells(row.costs) for row in table.rows), strict=True)
        columns += zip(COST_HEAD, map(list, costs), strict=True)
    align = "r" * terminal + "l" * (words - terminal) + "r" * (len(columns) - words) + "l"
    columns.append(("p against", [numbers.get(row.against) or against(row) for row in table.rows]))
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    notes = [TABLE_LEGEND, *([] if terminal else [_BRACKETS, MARGIN])]
    notes += [*table_notes(table), *band_notes(table), *source_note(table)]
    head, caption = [title for title, _ in columns], table.caption
    return PageTable(table.heading, head, rows, align=align, caption=caption, notes=notes, best=frozenset(best))


def _measured(table: Table, at: int, terminal: bool) -> list[tuple[str, list[str]]]:
    """Headings and cells of one measure: value, what any row has between it and its test, the test."""
    cells = table.column(at)
    between = {
        "printed": [number(cell.printed, table.decimals) for cell in cells],
        "Δ": [signed(None) if terminal else delta(cell) for cell in cells],
        "verdict": [short_verdict(cell) for cell in cells],
    }
    return [
        (table.names[at], [_value(cell, terminal) for cell in cells]),
        *((title, texts) for title, texts in between.items() if {*texts} - {"–"}),
        ("p", [format_p(cell.p) for cell in cells]) if terminal else ("difference", list(map(comparison, cells))),
    ]


def _value(cell: Cell, terminal: bool) -> str:
    """`53.96 ▲ [50.12, 57.80]`; on a terminal without the interval, so that numbers stand below one another."""
    value = f"{ours(cell)} {mark(cell.change, cell.p)}"
    if terminal:
        return value if mark(cell.change, cell.p) else f"{value} "
    interval = "" if cell.value is None else f" [{number(cell.low)}, {number(cell.high)}]"
    return value.rstrip() + interval


def comparison(cell: Cell, above: str = "above", below: str = "below") -> str:
    """`above: +8.15, p = 0.045`, `no difference shown (±7.31): +5.72, p = 0.089`; a dash without a test."""
    shown = conclusion(cell)
    words = {"above": above, "below": below}.get(shown, shown)
    return f"{words}: {signed(cell.change)}, {p_text(cell.p)}" if shown else "–"


def orders_grid(table: Table) -> PageTable | None:
    """A line for each order: whether it holds, by measure; None for a table without any."""
    if not table.orders:
        return None
    rows = [
        [order.claim, order.higher, order.lower]
        + [comparison(cell, above="holds", below="the other way round") for cell in order.cells]
        for order in table.orders
    ]
    head = ["order", "higher", "lower", *table.names]
    return PageTable(f"{table.heading}: orders", head, rows, align="l" * len(head), notes=[ORDERS])
