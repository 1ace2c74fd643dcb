"""A table as long-form CSV and as Markdown."""

import csv
import io
from collections.abc import Iterable, Sequence

from tandem.reporting import wording
from tandem.reporting.results import Cell, Table

HEADER = [
    *("system", "first_stage", "dataset", "split", "measure", "printed", "value", "low", "high", "p", "stage"),
    *("name", "sd", "seeds", "verdict", "printed_dataset", "printed_split"),
]


def csv_lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A head and rows as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return file.getvalue()


def csv_text(table: Table) -> str:
    """One line per system and measure; values in percent with four decimals, p with six, empty where there is none.

    `name` is the measure as printed, `seeds` the value of each seed, `printed_dataset` and `printed_split` the paper's.
    """
    lines = []
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            printed = "" if cell.printed is None else f"{cell.printed:.{table.decimals}f}"
            numbers = [_four(number) for number in (cell.value, cell.low, cell.high)]
            p = "" if cell.p is None else f"{cell.p:.6f}"
            known = [row.system, row.first_stage, cell.dataset, cell.split, cell.measure]
            seeds = " ".join(map(_four, cell.seeds)) if len(table.seeds) > 1 else ""
            more = [column["name"], _four(cell.sd), seeds, cell.verdict]
            paper = [column["printed_dataset"], column["printed_split"]]
            lines.append([*known, printed, *numbers, p, *(cell.stages[:1] or [row.stage]), *more, *paper])
    return csv_lines(HEADER, lines)


def _four(number: float | None) -> str:
    """Four decimals; nothing where there is no number."""
    return "" if number is None else f"{number:.4f}"


def markdown(table: Table) -> str:
    """A pipe table with, per measure: printed, ours with its interval, their difference, the verdict, p."""
    head = ["System", "re-ranks"]
    shown = list(zip(table.has_printed, table.has_verdict, strict=True))
    for name, (printed, judged) in zip(table.names, shown, strict=True):
        head += [f"{name} printed", "ours", "Δ"] if printed else [name]
        head += [*(["verdict"] if judged else []), "p"]
    lines = [
        f"**{escape(wording.heading(table))}** · {escape(table.caption)}",
        "",
        pipe_row([*head, "p against"]),
        pipe_row(["---"] * 2 + ["---:"] * (len(head) - 2) + ["---"]),
    ]
    for row in table.rows:
        words = [escape(row.system), escape(row.first_stage)]
        for cell, (printed, judged) in zip(row.cells, shown, strict=True):
            words += _words(cell, printed, judged, table.decimals)
        lines.append(pipe_row([*words, escape(wording.against(row))]))
    notes = [f"{wording.LEGEND} {wording.BRACKETS} {wording.CHANGE}", *([table.note.strip()] if table.note else [])]
    notes += [*wording.notes(table), *wording.bands(table)]
    notes += [f"Source of the printed values: {table.paper['citation'].strip()}."] if table.paper else []
    return "\n".join([*lines, "", *(f"{escape(note)}\n" for note in notes)]).rstrip("\n") + "\n"


def _words(cell: Cell, printed: bool, judged: bool, decimals: int) -> list[str]:
    """The columns of one measure."""
    value = f"**{wording.ours(cell)}**{wording.mark(cell.p)} {wording.interval(cell)}"
    ours = "–" if cell.value is None else value
    p = wording.probability(cell.p) + ("" if cell.change is None else f" ({wording.signed(cell.change)})")
    words = [wording.number(cell.printed, decimals), ours, wording.delta(cell)] if printed else [ours]
    return [*words, *([wording.verdict(cell)] if judged else []), p]


def pipe_row(words: list[str]) -> str:
    """A row of a pipe table."""
    return f"| {' | '.join(words)} |"


def escape(text: str) -> str:
    """Text in which Markdown and HTML see nothing of theirs."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
