"""Plots of a sweep: a measure along one path, a line for each system and each value of the other paths."""

import re
from typing import Any

import altair
from markupsafe import Markup

from tandem.reporting.page import asset
from tandem.reporting.sweep_results import Line, Result, labelled, short, worded
from tandem.reporting.vega import HEIGHT, WIDTH, colours, drawn, figure, rows, specification

MOST_NAMED = 16  # series in a legend


def figures(result: Result) -> list[Markup]:
    """A figure of the page for each measure."""
    return [_figure(result, measure) for measure in result.measures]


def svg(result: Result) -> str:
    """All measures below one another, as a drawing that needs no style sheet."""
    charts = [chart(result, measure).properties(title=measure) for measure in result.measures]
    told = specification(altair.vconcat(*charts).resolve_scale(color="shared"))
    return plain(str(drawn(told))) + "\n"


def plain(text: str) -> str:
    """A drawing with the light colours of the style sheet in place of its variables, on white."""
    light = re.findall(r"--([\w-]+):\s*(?:light-dark\()?(#[0-9a-fA-F]+)", asset("report.css").split("@media")[0])
    for name, colour in light:
        text = text.replace(f"var(--{name})", colour)
    return text.replace("<svg ", '<svg style="background: #fff" ', 1)


def chart(result: Result, measure: str) -> Any:
    """A measure along the axis; bands are ± one standard deviation over seeds, with one seed the 95 % interval."""
    lines = [line for line in result.lines if line.measure == measure]
    numbers = all(type(line.point[result.x]) in (int, float) for line in lines)  # True and False are no numbers here
    data = [_datum(result, line, numbers) for line in lines]
    names = list(dict.fromkeys(row["series"] for row in data))
    title = short(result.x)
    if numbers:
        from_zero = {} if result.scale == "log" else {"zero": False}  # which a logarithmic axis cannot be told
        x = altair.X("x:Q", title=title, scale=altair.Scale(type=result.scale, nice=False, **from_zero))
        x = x.axis(values=sorted({row["x"] for row in data})) if len({row["x"] for row in data}) <= 12 else x
    else:
        x = altair.X("x:N", title=title, sort=None)
    base = altair.Chart().encode(x=x, color=colours("series", names, legend=len(names) <= MOST_NAMED))
    y = altair.Y("y:Q", title=f"{measure}, %", scale=altair.Scale(zero=False))
    tooltip = ["series:N", altair.Tooltip("at:N", title=title), altair.Tooltip("said:N", title=measure)]
    line = base.mark_line(point=True, strokeWidth=2).encode(y=y, tooltip=tooltip)
    bounds = {"y": altair.Y("low:Q", title=f"{measure}, %"), "y2": "high:Q"}
    band = base.mark_area(opacity=0.15).encode(**bounds) if numbers else base.mark_rule(opacity=0.4).encode(**bounds)
    layers = [band, line]
    if any(row["printed"] is not None for row in data):
        told = [altair.Tooltip("printed:Q", title="printed")]
        crosses = base.transform_filter("datum.printed !== null")
        layers.append(crosses.mark_point(shape="cross", filled=True, size=70).encode(y="printed:Q", tooltip=told))
    return altair.layer(*layers, data=rows(data)).properties(width=WIDTH, height=HEIGHT)


def _datum(result: Result, line: Line, numbers: bool) -> dict[str, Any]:
    """A line of the table as a row of the plot's data."""
    at = line.point[result.x]
    low, high = (line.low, line.high) if line.sd is None else (line.value - line.sd, line.value + line.sd)
    bounds = {"low": round(low, 4), "high": round(high, 4)}
    named = {"series": _series(result, line), "at": worded(at), "said": said(line), "printed": line.printed}
    return {"x": at if numbers else worded(at), "y": line.value, **bounds, **named}


def _series(result: Result, line: Line) -> str:
    """`Retriever`, and the values of the other paths where there are any."""
    rest = {path: value for path, value in line.point.items() if path != result.x}
    return ", ".join([line.system, *([labelled(rest)] if rest else [])])


def said(line: Line) -> str:
    """`41.27 ± 0.30`, or the mean alone."""
    return f"{line.value:.2f}" if line.sd is None else f"{line.value:.2f} ± {line.sd:.2f}"


def _figure(result: Result, measure: str) -> Markup:
    """A measure's plot with its numbers."""
    lines = [line for line in result.lines if line.measure == measure]
    numbers = [[_series(result, line), worded(line.point[result.x]), said(line)] for line in lines]
    best = max(lines, key=lambda line: line.value)
    told = f"Highest: {said(best)}, {_series(result, best)} at {short(result.x)} {worded(best.point[result.x])}"
    return figure(
        f"{measure} along {short(result.x)}", chart(result, measure), told, ["", short(result.x), measure], numbers
    )
