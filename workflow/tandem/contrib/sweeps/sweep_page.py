"""The command `sweep`: a sweep's numbers as a long table, as plots and on a page; and its section of the report."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair
from markupsafe import Markup

from tandem.contrib.sweeps.sweep_numbers import SweepPlan, compute_sweep
from tandem.extras.report.charts import (
    HEIGHT,
    WIDTH,
    Datum,
    draw_figure,
    draw_svg,
    embed_data,
    make_specification,
    set_colours,
)
from tandem.extras.report.page import FOLDERS, read_asset, render_macro, render_template
from tandem.extras.report.sections import Addition, PageSection, adds_to_report
from tandem.extras.sweep_results import (
    SweepLine,
    SweepResult,
    format_path_value,
    label_point,
    read_result,
    shorten_path,
)
from tandem.report.grids import (
    PageTable,
    describe_unit,
    format_four_decimals,
    format_number,
    format_p,
    mark,
    write_markdown,
)
from tandem.report.results import Origin
from tandem.report.table_commands import CsvOut, read_plan, write_views
from tandem.store.artifact import MANIFEST
from tandem.store.files import csv_text
from tandem.store.lineage import BuiltStage

FOLDERS.append(Path(__file__).parent / "assets")
_MEASURED_COLUMNS = ["runs", "value", "sd", "low", "high", "change", "p", "printed", "stage"]
_LEGEND = (
    "{unit}, ± their standard deviation over seeds; in brackets the 95 % bootstrap interval over queries. "
    "p: paired two-sided test against the same system at the baseline point, over queries and, of several seeds, over "
    "seeds too; Holm-corrected over the sweep's comparisons per measure. ▲ significantly better, ▼ significantly "
    "worse: p < 0.05."
)
BANDS = "Bands of the plots: ± one standard deviation over seeds, with one seed the interval over queries."
MOST_NAMED = 16  # most series in a legend
MOST_COLUMNS = 12  # most columns of a table with a column for each value of the axis


def write_sweep(*, points: Path, out: CsvOut) -> None:
    """Write a sweep's table, numbers, page and drawing.

    Args:
        points: the planned sweep, which Snakemake writes.
        out: the table as CSV; .md, .json, .html and .svg files are written next to it.
    """
    result = compute_sweep(read_plan("points", points, SweepPlan, "a sweep's plan"))

    def address(run: Origin) -> str:
        return os.path.relpath(Path(run.folder) / MANIFEST, out.parent)

    html = render_template("sweep.html", title=result.title, sweep=view_sweep(result, address))
    text = "\n".join(map(write_markdown, [tabulate_sweep(result), *cross_paths(result)]))
    numbers = {".csv": render_sweep_csv(result), ".md": text, ".json": result.to_json()}
    write_views(out, numbers | {".svg": render_svg(result), ".html": html})


def render_sweep_csv(result: SweepResult) -> str:
    """Return a line per point, system and measure: a column for each path, then the measured numbers."""
    lines = []
    for line in result.lines:
        values = [format_path_value(line.point[path]) for path in result.paths]
        numbers = map(format_four_decimals, (line.value, line.sd, line.low, line.high, line.change))
        p = "" if line.p is None else f"{line.p:.6f}"
        printed = "" if line.printed is None else f"{line.printed:g}"
        where = [*values, line.system, result.dataset, result.split, line.measure]
        lines.append([*where, line.runs, *numbers, p, printed, " ".join(line.stages)])
    return csv_text(
        [*result.paths, "system", "dataset", "split", "measure", *_MEASURED_COLUMNS], lines
    )


def tabulate_sweep(result: SweepResult, notes: tuple[str, ...] = ()) -> PageTable:
    """Return a table of paths' values, the system, and each measure's value and p; values link to their first run."""
    legend = _LEGEND.format(unit=describe_unit(result.not_percent, len(result.measures)))
    with_printed = {line.measure for line in result.lines if line.printed is not None}
    head = [*map(shorten_path, result.paths), "system"]
    columns = []  # the column of each measure's value
    for measure in result.measures:
        if measure in with_printed:
            columns.append(len(head) + 1)
            head += [f"{measure} printed", f"{measure} ours", "p"]
        else:
            columns.append(len(head))
            head += [measure, "p"]

    rows: list[list[str]] = []
    links = {}
    width = len(result.measures)
    # the lines of a point and system are in the order of the measures
    for start in range(0, len(result.lines), width):
        lines = result.lines[start : start + width]
        row = [*(format_path_value(lines[0].point[path]) for path in result.paths), lines[0].system]
        for line, column in zip(lines, columns, strict=True):
            if line.measure in with_printed:
                row.append("–" if line.printed is None else str(line.printed))  # as written
            value = f"{format_line_value(line)} {mark(line.change, line.p)}".rstrip()
            row.append(f"{value} [{format_number(line.low)}, {format_number(line.high)}]")
            row.append(format_p(line.p))
            if line.stages[0] in result.runs:
                links[len(rows), column] = f"#run-{result.name}-{line.stages[0]}"
        rows.append(row)

    warnings = [f"Warning: {line}." for line in result.warnings]
    words = len(result.paths) + 1  # columns of words; the others contain numbers
    return PageTable(
        result.title,
        head,
        rows,
        named_by=words - 1,
        links=links,
        align="l" * words + "r" * (len(head) - words),
        caption=result.caption,
        notes=tuple(filter(None, (legend, *notes, result.note.strip(), *warnings))),
    )


def cross_paths(result: SweepResult) -> list[PageTable]:
    """Return a table per measure of a sweep over several paths: a row per line of its plot, a column per value.

    There is no table if the axis has more than `MOST_COLUMNS` values.
    """
    x = list(dict.fromkeys(format_path_value(line.point[result.x]) for line in result.lines))
    if len(result.paths) == 1 or len(x) > MOST_COLUMNS:
        return []
    grids = []
    for measure in result.measures:
        rows: dict[str, dict[str, str]] = {}
        for line in result.lines:
            if line.measure == measure:
                rows.setdefault(_name_series(result, line), {})[
                    format_path_value(line.point[result.x])
                ] = format_line_value(line)
        cells = [[name, *(values[column] for column in x)] for name, values in rows.items()]
        grids.append(PageTable(f"{measure} along {shorten_path(result.x)}", ["", *x], cells))
    return grids


def format_line_value(line: SweepLine) -> str:
    """Return `41.27 ± 0.30`, or only the mean if there is no standard deviation."""
    return f"{line.value:.2f}" if line.sd is None else f"{line.value:.2f} ± {line.sd:.2f}"


@dataclass(frozen=True)
class SweepView:
    """A sweep as `_sweeps.html` shows it: a figure for each measure, its tables, and addresses of its runs by key."""

    result: SweepResult
    charts: list[Markup]
    grid: PageTable
    crossed: list[PageTable]
    addresses: dict[str, str]  # empty if the page has none for a run


def view_sweep(result: SweepResult, address: Callable[[Origin], str]) -> SweepView:
    """Return a sweep as a page shows it."""
    charts = [_draw_figure(result, measure) for measure in result.measures]
    addresses = {key: address(run) for key, run in result.runs.items()}
    return SweepView(
        result, charts, tabulate_sweep(result, (BANDS,)), cross_paths(result), addresses
    )


@adds_to_report("sweeps")
def add_sweeps(files: Sequence[str]) -> Addition:
    """Add the report's section of sweeps; runs link to their stages if the page has these."""
    results = [read_result(Path(file).with_suffix(".json")) for file in files]

    def section(stages: dict[str, BuiltStage]) -> PageSection | None:
        """Return the section, whose runs link to the stages that the page has."""

        def address(run: Origin) -> str:
            return f"#stage-{run.run}" if run.run in stages else ""

        views = [view_sweep(result, address) for result in results]
        return (
            PageSection("sweeps", "Sweeps", render_macro("_sweeps.html", "swept", views), "results")
            if views
            else None
        )

    return Addition(section=section)


def render_svg(result: SweepResult) -> str:
    """Return the plots of all measures below one another, as a drawing that needs no style sheet."""
    charts = [draw_sweep(result, measure).properties(title=measure) for measure in result.measures]
    drawing = str(
        draw_svg(make_specification(altair.vconcat(*charts).resolve_scale(color="shared")))
    )
    # the style sheet's light colours replace its variables
    css = read_asset("report.css").split("@media")[0]
    for name, colour in re.findall(r"--([\w-]+):\s*(?:light-dark\()?(#[0-9a-fA-F]+)", css):
        drawing = drawing.replace(f"var(--{name})", colour)
    return drawing.replace("<svg ", '<svg style="background: #fff" ', 1) + "\n"


def draw_sweep(result: SweepResult, measure: str) -> Any:
    """Draw a measure along the axis; bands are ± one standard deviation over seeds, or with one seed the interval."""
    lines = [line for line in result.lines if line.measure == measure]
    # True and False are not numbers here
    numbers = all(type(line.point[result.x]) in (int, float) for line in lines)
    data = [_make_datum(result, line, numbers) for line in lines]
    names = [str(name) for name in dict.fromkeys(row["series"] for row in data)]
    title = shorten_path(result.x)
    if numbers:
        ticks: list[Any] = sorted(
            {line.point[result.x] for line in lines}, key=lambda value: float(str(value))
        )
        scale: dict[str, Any] = {"type": result.scale}
        if result.scale == "linear":
            scale["zero"] = False
        elif ticks[0] <= 0:
            # 0 has no logarithm: the axis is linear below the smallest other value
            scale = {
                "type": "symlog",
                "constant": min((abs(tick) for tick in ticks if tick), default=1),
            }
        x = altair.X("x:Q", title=title, scale=altair.Scale(nice=False, **scale))
        x = x.axis(values=ticks) if len(ticks) <= 12 else x
    else:
        x = altair.X("x:N", title=title, sort=None)
    base = altair.Chart().encode(
        x=x, color=set_colours("series", names, legend=len(names) <= MOST_NAMED)
    )
    y = altair.Y("y:Q", title=result.label_axis(measure), scale=altair.Scale(zero=False))
    tooltip = [
        "series:N",
        altair.Tooltip("at:N", title=title),
        altair.Tooltip("text:N", title=measure),
    ]
    line = base.mark_line(point=True, strokeWidth=2).encode(y=y, tooltip=tooltip)
    bounds = {"y": altair.Y("low:Q", title=result.label_axis(measure)), "y2": "high:Q"}
    band = (
        base.mark_area(opacity=0.15).encode(**bounds)
        if numbers
        else base.mark_rule(opacity=0.4).encode(**bounds)
    )
    layers = [band, line]
    if any(row["printed"] is not None for row in data):
        tips = [altair.Tooltip("printed:Q", title="printed")]
        crosses = base.transform_filter("datum.printed !== null")
        layers.append(
            crosses.mark_point(shape="cross", filled=True, size=70).encode(
                y="printed:Q", tooltip=tips
            )
        )
    return altair.layer(*layers, data=embed_data(data)).properties(width=WIDTH, height=HEIGHT)


def _make_datum(result: SweepResult, line: SweepLine, numbers: bool) -> Datum:
    value = line.point[result.x]
    if line.sd is None:
        low, high = line.low, line.high
    else:
        low, high = line.value - line.sd, line.value + line.sd
    return {
        "x": value if numbers else format_path_value(value),
        "y": line.value,
        "low": round(low, 4),
        "high": round(high, 4),
        "series": _name_series(result, line),
        "at": format_path_value(value),
        "text": format_line_value(line),
        "printed": line.printed,
    }


def _name_series(result: SweepResult, line: SweepLine) -> str:
    rest = {path: value for path, value in line.point.items() if path != result.x}
    return f"{line.system}, {label_point(rest)}" if rest else line.system


def _draw_figure(result: SweepResult, measure: str) -> Markup:
    lines, x = [line for line in result.lines if line.measure == measure], shorten_path(result.x)
    numbers = [
        [
            _name_series(result, line),
            format_path_value(line.point[result.x]),
            format_line_value(line),
        ]
        for line in lines
    ]
    best = max(lines, key=lambda line: line.value)
    place = f"{x} {format_path_value(best.point[result.x])}"
    summary = f"Highest: {format_line_value(best)}, {_name_series(result, best)} at {place}"
    return draw_figure(
        f"{measure} along {x}", draw_sweep(result, measure), summary, ["", x, measure], numbers
    )
