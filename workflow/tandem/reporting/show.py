"""The command `show`: a table on the terminal."""

import textwrap
from pathlib import Path

from tandem.errors import UserError
from tandem.reporting import wording
from tandem.reporting.layout import name
from tandem.reporting.results import Row, Table, from_json

TEXT_COLUMNS = ("System", "re-ranks", "p against")
WIDEST_LEGEND = 120


def main(words: list[str]) -> int:
    """`show results/tables/<table>.csv`: prints the table that lies there, aligned, with every p-value."""
    if len(words) != 1:
        raise UserError(f"show: takes one file, a table's .csv; {len(words)} were given")
    print(aligned(from_json(Path(words[0]).with_suffix(".json"))))
    return 0


def aligned(table: Table) -> str:
    """Plain text: a line per system; per measure the printed value where there is one, ours with its mark, and p."""
    head = ["#", *TEXT_COLUMNS[:2], *_heads(table), TEXT_COLUMNS[2]]
    at = {name((row.system, row.first_stage)): f"#{n}" for n, row in enumerate(table.rows, start=1)}
    lines = [head, *(_line(table, row, n, at) for n, row in enumerate(table.rows, start=1))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(
            word.ljust(width) if title in TEXT_COLUMNS else word.rjust(width)
            for word, width, title in zip(line, widths, head, strict=True)
        )
        for line in lines
    ]
    rule = "─" * len(padded[0])
    width = max(60, min(len(rule), WIDEST_LEGEND))
    legend = [line for note in _notes(table) for line in textwrap.wrap(note, width)]
    title = f"{wording.heading(table)} · {table.caption}"
    return "\n".join(line.rstrip() for line in [title, rule, padded[0], rule, *padded[1:], rule, *legend])


def _notes(table: Table) -> list[str]:
    """What stands below the table."""
    return [wording.LEGEND, *wording.notes(table), *wording.bands(table)]


def _heads(table: Table) -> list[str]:
    """Column heads of the measures; the blank leaves room for a mark."""
    heads = []
    for title, printed, judged in zip(table.names, table.has_printed, table.has_verdict, strict=True):
        heads += [f"{title} printed", "ours "] if printed else [f"{title} "]
        heads += [*(["verdict"] if judged else []), "p"]
    return heads


def _line(table: Table, row: Row, number: int, at: dict[str, str]) -> list[str]:
    """The words of one system; first stage and baseline by number where they are rows too."""
    line = [str(number), row.system, at.get(row.first_stage, row.first_stage) or "–"]
    for cell, printed, judged in zip(row.cells, table.has_printed, table.has_verdict, strict=True):
        line += [wording.number(cell.printed, table.decimals)] if printed else []
        line += [f"{wording.ours(cell)}{wording.mark(cell.p) or ' '}"]
        line += [*([wording.verdict(cell)] if judged else []), wording.probability(cell.p)]
    return [*line, at.get(row.against) or wording.against(row)]
