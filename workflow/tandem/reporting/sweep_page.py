"""A sweep on a page: its plots, and its table, whose values lead to the runs they were measured on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tandem.reporting import wording
from tandem.reporting.grid import Grid
from tandem.reporting.sweep_plot import figures, said
from tandem.reporting.sweep_results import Line, Result, short, worded

LEGEND = (
    "Values in percent, ± their standard deviation over seeds; in brackets the 95 % bootstrap interval over queries. "
    "p: paired two-sided randomisation test of the queries' means over seeds against the same system at the baseline "
    "point, Holm-corrected over the sweep's comparisons per measure; † p < 0.05, ‡ p < 0.01, better or worse."
)
BANDS = "Bands of the plots: ± one standard deviation over seeds, with one seed the interval over queries."


@dataclass(frozen=True)
class Shown:
    """What `_sweeps.html` shows of a sweep; `address` says where a run's own entry is, empty: nowhere on the page."""

    result: Result
    charts: list[Markup]
    grid: Grid
    address: Callable[[dict[str, Any]], str]

    @property
    def notes(self) -> list[str]:
        """What stands below the table."""
        return [LEGEND, BANDS, *([self.result.note] if self.result.note else [])]

    def anchor(self, key: str) -> str:
        """The id of a run's line; several sweeps may show one run."""
        return anchor(self.result, key)


def anchor(result: Result, key: str) -> str:
    """The id of a run's line in the list below a sweep's table."""
    return f"run-{result.name}-{key}"


def shown(result: Result, address: Callable[[dict[str, Any]], str]) -> Shown:
    """A sweep for a page."""
    head, rows = table(result)
    links = {
        (row, column): f"#{anchor(result, line.stages[0])}"
        for row, lines in enumerate(_by_row(result))
        for column, line in zip(_columns(result), lines, strict=True)
        if line.stages[0] in result.runs
    }
    return Shown(result, figures(result), Grid(result.title, head, rows, len(result.paths), links), address)


def table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Head and rows as text: the paths' values, the system, and per measure its value and p."""
    head = [*map(short, result.paths), "system"]
    for measure, printed in zip(result.measures, _printed(result), strict=True):
        head += [f"{measure} printed", f"{measure} ours", "p"] if printed else [measure, "p"]
    rows = []
    for lines in _by_row(result):
        row = [*(worded(lines[0].point[path]) for path in result.paths), lines[0].system]
        for line, printed in zip(lines, _printed(result), strict=True):
            row += [wording.number(line.printed, 1)] if printed else []
            row += [_value(line), wording.probability(line.p)]
        rows.append(row)
    return head, rows


def _by_row(result: Result) -> list[list[Line]]:
    """Lines of a point and system, which stand together in the order of the measures."""
    width = len(result.measures)
    return [result.lines[start : start + width] for start in range(0, len(result.lines), width)]


def _printed(result: Result) -> list[bool]:
    """Of each measure, whether a paper's value stands beside it."""
    told = {line.measure for line in result.lines if line.printed is not None}
    return [measure in told for measure in result.measures]


def _columns(result: Result) -> list[int]:
    """The column of each measure's values."""
    at, columns = len(result.paths) + 1, []
    for printed in _printed(result):
        columns.append(at + printed)
        at += 2 + printed
    return columns


def _value(line: Line) -> str:
    """`41.27 ± 0.30† [38.10, 44.20]`."""
    return f"{said(line)}{wording.mark(line.p)} [{wording.number(line.low)}, {wording.number(line.high)}]"
