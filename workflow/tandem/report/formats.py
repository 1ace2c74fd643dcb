"""How a table's numbers are written: the same in CSV, Markdown, LaTeX, HTML and on a terminal."""

from tandem.evaluation.layouts import system_name
from tandem.report.grid import Grid, csv_text
from tandem.report.results import Cell, Row, Table

LEVEL, LEAST = 0.05, 0.001  # of p: significant below the first; below the second, not written out
LEGEND = (
    "Values in percent, the best in bold. ▲ significantly better and ▼ significantly worse than the row's baseline: "
    "p < 0.05 in a paired two-sided test, Holm-corrected over the table's comparisons per measure."
)
BRACKETS = "In brackets the 95 % bootstrap interval over queries."
TEST = "The test is by randomisation."
SEEDS = (
    "Mean ± standard deviation over the seeds {seeds}; the intervals are of the per-query means over them. p is the "
    "larger of a randomisation test on these means and a test with queries and seeds as random factors (quasi-F)."
)
VERDICTS = (
    "Verdict: match within the band's tolerance of the printed number, near, or off. Where the band is of own earlier "
    "runs: as in them, near or unlike them. None where another dataset stands in without a band."
)
EARLIER = {"match": "as in earlier runs", "near": "near earlier runs", "off": "unlike earlier runs"}
WRONG = "printed number is wrong"  # how a verdict on such a number begins
CSV_HEAD = [
    *("system", "first_stage", "dataset", "split", "measure", "printed", "value", "low", "high", "change", "p", "mark"),
    *("stage", "name", "sd", "seeds", "verdict", "printed_dataset", "printed_split"),
]


def number(value: float | None, decimals: int = 2) -> str:
    """`53.96`; a dash without a value."""
    return "–" if value is None else f"{value:.{decimals}f}"


def ours(cell: Cell) -> str:
    """`53.96`, `53.96 ± 0.41` over several seeds."""
    return number(cell.value) + ("" if cell.sd is None else f" ± {number(cell.sd)}")


def signed(difference: float | None, decimals: int = 2) -> str:
    """`+1.25`; a dash without a value."""
    return "–" if difference is None else f"{difference:+.{decimals}f}".replace("-", "−")


def delta(cell: Cell) -> str:
    """Ours minus printed; a dash where that says nothing: another dataset stands in, or the printed number is wrong."""
    if cell.printed is None or cell.value is None or cell.stands_in or cell.verdict.startswith(WRONG):
        return "–"
    return signed(cell.value - cell.printed)


def probability(p: float | None) -> str:
    """`0.012`, `<0.001`; a dash where nothing was tested."""
    if p is None:
        return "–"
    return f"<{LEAST}" if p < LEAST else f"{p:.3f}"


def mark(change: float | None, p: float | None) -> str:
    """▲ for significantly better, ▼ for significantly worse than the baseline; else nothing."""
    if change is None or p is None or p >= LEVEL:
        return ""
    return "▲" if change > 0 else "▼"


def short_verdict(cell: Cell) -> str:
    """The verdict in few words; why a printed number is wrong stands below the table."""
    if cell.verdict.startswith(WRONG):
        return WRONG
    earlier = cell.band is not None and cell.band.value is not None
    return (EARLIER[cell.verdict] if earlier else cell.verdict) if cell.verdict else "–"


def against(row: Row) -> str:
    """The baseline that a row is tested against; `quoted` for a quoted one, `not made` for one without any number."""
    if row.quoted:
        return "quoted" if is_printed(row) else "not made"
    return row.against or "–"


def is_printed(row: Row) -> bool:
    """Whether a paper prints a number of a row."""
    return any(cell.printed is not None for cell in row.cells)


def is_best(table: Table, row: Row, at: int) -> bool:
    """Whether a row has the highest value of a column that has others."""
    values = {cell.value for cell in table.column(at) if cell.value is not None}
    return len(values) > 1 and row.cells[at].value == max(values)


def ranked(table: Table) -> list[Row]:
    """The rows in falling order of the first measure; those without a value last."""
    return sorted(table.rows, key=lambda row: -1.0 if row.cells[0].value is None else row.cells[0].value, reverse=True)


def anchor(table: Table, row: Row) -> str:
    """The id of what is behind a row; two rows may show one run."""
    return f"row-{table.rows.index(row) + 1}"


def bar(cell: Cell, column: list[Cell]) -> str:
    """Style of the bar of an interval: its ends and its value, in percent of the range of all of a column."""
    lows, highs = [c.low for c in column if c.low is not None], [c.high for c in column if c.high is not None]
    low, width = min(lows), max(highs) - min(lows) or 1.0
    ends = zip(("low", "at", "high"), (cell.low, cell.value, cell.high), strict=True)
    return "; ".join(f"--{name}: {100 * (end - low) / width:.1f}%" for name, end in ends if end is not None)


def answer(table: Table) -> list[str]:
    """What a table says, in sentences: the best system, then the systems that are worse than their baselines."""
    if (best := table.best) is None:
        return []
    sentence = f"{best.system} is best: {best.measure} {number(best.value, 1)}"
    if best.gain is not None:
        surely = "" if best.p is not None and best.p < LEVEL else " not significantly,"
        sentence += f",{surely} {signed(best.gain, 1)} over {best.over} ({p_text(best.p)})"
    worse = hurt(table)
    unsure = [row for row in table.rows if (row.cells[0].change or 0.0) < 0 and row not in worse]
    sentences = [f"{sentence}."]
    if worse:
        sentences.append(f"{losses(worse)} {'hurt' if len(worse) > 1 else 'hurts'}.")
    if unsure:
        sentences.append(f"{losses(unsure)} {'are' if len(unsure) > 1 else 'is'} lower, but not significantly.")
    return sentences


def hurt(table: Table) -> list[Row]:
    """The rows that are significantly worse than their baselines by the first measure."""
    return [row for row in table.rows if mark(row.cells[0].change, row.cells[0].p) == "▼"]


def losses(rows: list[Row]) -> str:
    """`CE on BM25 (−2.9 against BM25, p = 0.012) and DE (…)`."""
    texts = [
        f"{system_name(row.id)} ({signed(row.cells[0].change, 1)} against {row.against}, {p_text(row.cells[0].p)})"
        for row in rows
    ]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def p_text(p: float | None) -> str:
    """`p = 0.012`, `p < 0.001`."""
    return f"p < {LEAST}" if p is not None and p < LEAST else f"p = {probability(p)}"


def table_notes(table: Table) -> list[str]:
    """The notes below a table: how it was made, why printed numbers are wrong, and what the stages warn of."""
    notes = [table.note.strip()] if table.note.strip() else []
    notes.append(SEEDS.format(seeds=", ".join(map(str, table.seeds))) if len(table.seeds) > 1 else TEST)
    for row in table.rows:
        if row.absent:
            notes.append(f"{row.system} is {'only printed' if is_printed(row) else 'not made'}: {row.absent}.")
    if any(map(table.has_verdict, range(len(table.columns)))):
        notes.append(VERDICTS)
    notes += [
        f"{row.system}, {label}: {cell.verdict}."
        for row in table.rows
        for cell, label in zip(row.cells, table.names, strict=True)
        if cell.verdict.startswith(WRONG)
    ]
    return [*notes, *(f"{line}." for line in table.notes), *(f"Warning: {line}." for line in table.warnings)]


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


def source_note(table: Table) -> list[str]:
    """Where the printed values come from."""
    return [f"Printed values: {table.paper.citation.strip()}, {table.paper.table}."] if table.paper else []


def table_csv(table: Table) -> str:
    """One line per system and measure: values in percent with four decimals, p with six, empty without a value."""
    lines = []
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            printed = "" if cell.printed is None else f"{cell.printed:.{table.decimals}f}"
            numbers = [four_decimals(value) for value in (cell.value, cell.low, cell.high, cell.change)]
            p = "" if cell.p is None else f"{cell.p:.6f}"
            known = [row.system, row.first_stage, cell.dataset, cell.split, cell.measure]
            seeds = " ".join(map(four_decimals, cell.seeds)) if len(table.seeds) > 1 else ""
            test = [p, mark(cell.change, cell.p), (cell.stages or [row.stage])[0]]
            more = [column.name, four_decimals(cell.sd), seeds, cell.verdict]
            lines.append([*known, printed, *numbers, *test, *more, column.printed_dataset, column.printed_split])
    return csv_text(CSV_HEAD, lines)


def four_decimals(value: float | None) -> str:
    """Four decimals; nothing without a value."""
    return "" if value is None else f"{value:.4f}"


def table_grid(table: Table, terminal: bool = False) -> Grid:
    """Per measure: ours with mark and interval, the printed value and the difference, the verdict, p and change.

    On a terminal, intervals and differences are left out, and rows are named by their number.
    """
    numbers = {system_name(row.id): f"#{at}" for at, row in enumerate(table.rows, 1)} if terminal else {}
    head = [*(["#"] if terminal else []), "System", "re-ranks"]
    words = len(head)
    rows = [
        [*([str(at)] if terminal else []), row.system, numbers.get(row.first_stage, row.first_stage) or "–"]
        for at, row in enumerate(table.rows, 1)
    ]
    best = []
    for at, name in enumerate(table.names):
        best += [(line, len(head)) for line, row in enumerate(table.rows) if is_best(table, row, at)]
        compared = not terminal and any(delta(cell) != "–" for cell in table.column(at))
        more = {"printed": table.has_printed(at), "Δ": compared, "verdict": table.has_verdict(at)}
        shown = [heading for heading, there in more.items() if there]
        head += [name, *shown, "p"]
        for line, row in zip(rows, table.rows, strict=True):
            line += _cells(row.cells[at], table.decimals, shown, terminal)
    for line, row in zip(rows, table.rows, strict=True):
        line.append(numbers.get(row.against) or against(row))
    align = "r" * terminal + "ll" + "r" * (len(head) - words) + "l"
    notes = [LEGEND, *([] if terminal else [BRACKETS, "In parentheses the difference from the baseline."])]
    notes += [*table_notes(table), *band_notes(table), *source_note(table)]
    return Grid(
        table.heading, [*head, "p against"], rows, align=align, caption=table.caption, notes=notes, best=frozenset(best)
    )


def _cells(cell: Cell, decimals: int, shown: list[str], terminal: bool) -> list[str]:
    """The cells of one measure: the value, what `shown` names, and p."""
    value, p = f"{ours(cell)} {mark(cell.change, cell.p)}".rstrip(), probability(cell.p)
    if terminal:
        value = value if mark(cell.change, cell.p) else f"{value}  "  # so that numbers stand below one another
    elif cell.value is not None:
        value += f" [{number(cell.low)}, {number(cell.high)}]"
        p += "" if cell.change is None else f" ({signed(cell.change)})"
    texts = {"printed": number(cell.printed, decimals), "Δ": delta(cell), "verdict": short_verdict(cell)}
    return [value, *(texts[heading] for heading in shown), p]
