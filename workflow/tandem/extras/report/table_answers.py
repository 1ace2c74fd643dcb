"""What a table shows, in sentences, at the top of the report's page and at the end of `tandem run`."""

from tandem.evaluation.layouts import name_system
from tandem.report.grids import LEVEL, describe_p, format_difference, format_number, mark
from tandem.report.results import BestSystem, FilledRow, Table

_MOST_NAMED = 4  # rows that a sentence names; the table has all


def answer_question(table: Table) -> list[str]:
    """Return what a table shows, in sentences.

    The highest value, then the systems that are worse than their baselines.
    """
    best = table.best
    if best is None:
        return []
    value = format_number(best.value, 1)
    sentence = f"{best.system} has the highest {best.measure}{name_scored_queries(best)}: {value}"
    if best.gain is not None:
        is_sure = best.p is not None and best.p < LEVEL
        surely = "" if is_sure else ", which is not significant"
        sentence += (
            f", {format_difference(best.gain, 1)} over {best.over}{surely} ({describe_p(best.p)})"
        )
    worse = list_hurt(table)
    unsure = [row for row in table.rows if (row.cells[0].change or 0.0) < 0 and row not in worse]
    sentences = [f"{sentence}."]
    if worse:
        sentences.append(f"{name_losses(worse)} {'hurt' if len(worse) > 1 else 'hurts'}.")
    if unsure:
        sentences.append(
            f"{name_losses(unsure)} {'are' if len(unsure) > 1 else 'is'} lower, but not significantly."
        )
    return sentences


def name_scored_queries(best: BestSystem) -> str:
    """Return ` on 20 queries`, to continue a sentence; empty if all rows of the table are scored on the same."""
    return f" on {best.among}" if best.among else ""


def rank_rows(table: Table) -> list[FilledRow]:
    """Return the rows in falling order of the first measure; rows without a value come last.

    If rows are scored on different queries or labels, those of the best system's come first.
    """
    among = table.best.among if table.best else ""

    def find_rank(row: FilledRow) -> tuple[bool, float]:
        cell = row.cells[0]
        value = -1.0 if cell.value is None else cell.value
        return not among or cell.queries == among, value

    return sorted(table.rows, key=find_rank, reverse=True)


def list_hurt(table: Table) -> list[FilledRow]:
    """Return the rows that are significantly worse than their baselines by the first measure."""
    return [row for row in table.rows if mark(row.cells[0].change, row.cells[0].p) == "▼"]


def name_losses(rows: list[FilledRow]) -> str:
    """Return `CE on BM25 (−2.9 against BM25, p = 0.012) and DE (…)`; the rows beyond four are only counted."""
    named = rows if len(rows) <= _MOST_NAMED else rows[: _MOST_NAMED - 1]
    texts = []
    for row in named:
        cell = row.cells[0]
        loss = f"{format_difference(cell.change, 1)} against {row.against}, {describe_p(cell.p)}"
        texts.append(f"{name_system(row.id)} ({loss})")
    if len(named) < len(rows):
        texts.append(f"{len(rows) - len(named)} others")
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last
