"""A table as long-form CSV and as Markdown."""

import csv
import io

from tandem.reporting import wording
from tandem.reporting.results import Cell, Table

HEADER = ["system", "first_stage", "dataset", "split", "measure", "printed", "value", "low", "high", "p", "stage"]


def csv_text(table: Table) -> str:
    """One line per system and measure; values in percent with four decimals, p with six, empty where there is none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADER)
    for row in table.rows:
        for cell in row.cells:
            printed = "" if cell.printed is None else f"{cell.printed:.{table.decimals}f}"
            numbers = [f"{number:.4f}" for number in (cell.value, cell.low, cell.high)]
            p = "" if cell.p is None else f"{cell.p:.6f}"
            known = [row.system, row.first_stage, table.dataset, table.split, cell.measure]
            writer.writerow([*known, printed, *numbers, p, row.stage])
    return file.getvalue()


def markdown(table: Table) -> str:
    """A pipe table with, per measure: printed, ours with its interval, their difference, p."""
    head = ["System", "re-ranks"]
    for name, printed in zip(table.names, table.has_printed, strict=True):
        head += [f"{name} printed", "ours", "Δ", "p"] if printed else [name, "p"]
    lines = [
        f"**{escape(wording.heading(table))}** · {escape(table.caption)}",
        "",
        pipe_row([*head, "p against"]),
        pipe_row(["---"] * 2 + ["---:"] * (len(head) - 2) + ["---"]),
    ]
    for row in table.rows:
        words = [escape(row.system), escape(row.first_stage)]
        for cell, printed in zip(row.cells, table.has_printed, strict=True):
            words += _words(cell, printed, table.decimals)
        lines.append(pipe_row([*words, escape(row.against or "–")]))
    notes = [f"{wording.LEGEND} {wording.BRACKETS} {wording.CHANGE}", *([table.note.strip()] if table.note else [])]
    notes += [f"Source of the printed values: {table.paper['citation'].strip()}."] if table.paper else []
    return "\n".join([*lines, "", *(f"{escape(note)}\n" for note in notes)]).rstrip("\n") + "\n"


def _words(cell: Cell, printed: bool, decimals: int) -> list[str]:
    """The columns of one measure."""
    ours = f"**{wording.number(cell.value)}**{wording.mark(cell.p)} {wording.interval(cell)}"
    p = wording.probability(cell.p) + ("" if cell.change is None else f" ({wording.signed(cell.change)})")
    return [wording.number(cell.printed, decimals), ours, wording.delta(cell), p] if printed else [ours, p]


def pipe_row(words: list[str]) -> str:
    """A row of a pipe table."""
    return f"| {' | '.join(words)} |"


def escape(text: str) -> str:
    """Text in which Markdown and HTML see nothing of theirs."""
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}")
    return text
