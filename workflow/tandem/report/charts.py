"""Plots by Altair: lines, points, histograms and bars, in figures of the page.

A plot is drawn once as SVG, which needs no script, and described to Vega, which makes it answer the pointer. Colours
are the style sheet's variables, so that a plot follows the page from light to dark.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress, pairwise
from typing import Any

import altair
import numpy as np
import vl_convert
from markupsafe import Markup

from tandem.report.page import PageTable, fragment

Datum = dict[str, Any]  # a row of a plot's data
Specification = dict[str, object]  # a plot as Vega-Lite reads it
WIDTH, HEIGHT = 400, 190
CHART_SIZE = {"width": WIDTH, "height": HEIGHT}  # in pixels; the page scales it
_COLOURS = [f"var(--c{at})" for at in range(8)]  # of the style sheet; more series begin again
MOST_ROWS = 12  # of the numbers below a plot
MOST_COLUMNS, LETTER, SYMBOL = 4, 6.8, 30  # of a legend; the widths of a letter and of a symbol, in pixels
_FIT = altair.AutoSizeParams(type="fit-x", contains="padding")  # names beside the axis count as part of the width
MOST_POINTS = 300
_DOTS = 24  # a line of no more points has them marked

_AXIS = {
    **dict.fromkeys(("labelColor", "titleColor", "domainColor"), "var(--quiet)"),
    **dict.fromkeys(("gridColor", "tickColor"), "var(--line)"),
    **{"titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11.5, "labelLimit": 220},
}
_LEGEND = {"orient": "bottom", "title": None, "labelColor": "var(--ink)", "labelFontSize": 12, "labelLimit": 340}
_VEGA_CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "aria": False,  # the figure is described as a whole; Vega would have every mark read out
    "mark": {"aria": False},
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisX": {"tickCount": 6, "labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 6},
    "axisY": {"tickCount": 5},
    "legend": {**_LEGEND, "symbolStrokeWidth": 2.5, "symbolOpacity": 1},
}


@dataclass(frozen=True)
class Series:
    """A line: its name and its points in ascending x."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def thinned(series: Series) -> Series:
    """The series' finite points, thinned to at most MOST_POINTS means over equally many neighbours."""
    known = list(map(math.isfinite, series.y))
    series = Series(series.name, [*compress(series.x, known)], [*compress(series.y, known)])
    if len(series.x) <= MOST_POINTS:
        return series
    x, y = ([float(part.mean()) for part in np.array_split(values, MOST_POINTS)] for values in (series.x, series.y))
    return Series(series.name, x, y)


def line_chart(
    title: str, series: Sequence[Series], x_label: str, y_label: str, log: bool = False, smooth: bool = False
) -> Markup:
    """Lines over a common x, logarithmic with `log`; the legend stands below.

    With `smooth` the lines are running means over a tenth of the points, and the points themselves are faint.
    """
    lines = [thinned(line) for line in series]
    data, most = _points(lines), max((len(line.x) for line in lines), default=0)
    scale = altair.Scale(type="log", nice=False) if log else altair.Scale(type="linear", zero=False, nice=False)
    whole = all(float(point["x"]).is_integer() for point in data)
    chosen = altair.selection_point(name="chosen", fields=["series"], bind="legend")
    base = altair.Chart(inline(data)).encode(
        x=altair.X("x:Q", title=x_label, scale=scale, axis=altair.Axis(tickMinStep=1) if whole else altair.Axis()),
        y=altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False)),
        color=colours("series", [line.name for line in lines]),
        tooltip=["series:N", altair.Tooltip("x:Q", title=x_label), altair.Tooltip("y:Q", title=y_label, format=".4~g")],
        opacity=altair.when(chosen).then(altair.value(1)).otherwise(altair.value(0.15)),
    )
    chart = base.mark_line(point=most <= _DOTS, strokeWidth=2).add_params(chosen)
    if smooth and (around := most // 20):
        means = chart.transform_window(y="mean(y)", frame=[-around, around], groupby=["series"])
        chart = base.mark_line(strokeWidth=1).encode(opacity=altair.value(0.25)) + means
        title += f" (thick: means of {2 * around + 1} neighbours)"
    summary = "; ".join(_course(line, x_label) for line in lines)
    return figure(title, chart.properties(**CHART_SIZE), summary, *_columns(lines, x_label))


def scatter(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Markup:
    """Points, each series in its colour; the legend stands below."""
    data = _points(series)
    chart = altair.Chart(inline(data)).mark_point(filled=True, size=60, opacity=0.9)
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False)),
        y=altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False)),
        color=colours("series", [points.name for points in series]),
        tooltip=["series:N", altair.Tooltip("x:Q", title=x_label), altair.Tooltip("y:Q", title=y_label)],
    )
    summary = f"{len(data)} points of {len(series)} series"
    numbers = [[point["series"], f"{point['x']:g}", f"{point['y']:.4g}"] for point in data]
    return figure(title, chart.properties(**CHART_SIZE), summary, ["series", x_label, y_label], numbers)


def histogram(title: str, edges: Sequence[float], counts: Mapping[str, Sequence[int]], x_label: str) -> Markup:
    """Steps of several groups over the same edges, each as a share of its group."""
    names = {group: f"{group} ({sum(ns):,})" for group, ns in counts.items()}
    shares = {group: [100 * n / max(1, sum(ns)) for n in ns] for group, ns in counts.items()}
    # A step ends at the last edge: the last bin's share stands there again.
    data = [
        {"x": edge, "share": round(share, 4), "group": names[group]}
        for group, bins in shares.items()
        for edge, share in zip(edges, [*bins, bins[-1]], strict=True)
    ]
    chart = altair.Chart(inline(data)).mark_area(interpolate="step-after", line={"strokeWidth": 2}, fillOpacity=0.18)
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False, nice=False)),
        y=altair.Y("share:Q", title="% of group", stack=None),
        color=colours("group", list(names.values())),
        tooltip=["group:N", altair.Tooltip("x:Q", title="from"), altair.Tooltip("share:Q", title="%", format=".1f")],
    )
    modes = [(name, max(range(len(bins)), key=bins.__getitem__)) for name, bins in shares.items()]
    summary = "; ".join(f"{names[name]}: most from {edges[at]:g} to {edges[at + 1]:g}" for name, at in modes)
    numbers = [
        [f"{left:g} to {right:g}", *(f"{ns[at]:,}" for ns in counts.values())]
        for at, (left, right) in enumerate(pairwise(edges))
    ]
    return figure(title, chart.properties(**CHART_SIZE), summary, [x_label, *counts], numbers)


def bars(title: str, values: Mapping[str, Mapping[str, float]], x_label: str, form: str = ".2f") -> Markup:
    """Horizontal bars, below one another for each name: `{"bm25": {"before": 40, "after": 45.5}}`."""
    groups = list(dict.fromkeys(group for own in values.values() for group in own))
    data = [
        {"name": name, "group": group, "value": round(value, 4)}
        for name, own in values.items()
        for group, value in own.items()
    ]
    chart = altair.Chart(inline(data)).mark_bar()
    chart = chart.encode(
        x=altair.X("value:Q", title=x_label),
        y=altair.Y("name:N", title=None, sort=None),
        yOffset=altair.YOffset("group:N", sort=groups),
        color=colours("group", groups, legend=len(groups) > 1),
        tooltip=["name:N", "group:N", altair.Tooltip("value:Q", title=x_label, format=form)],
    )
    numbers = [[name, *(f"{own[group]:{form}}" for group in groups)] for name, own in values.items()]
    words = [", ".join(map(" ".join, zip(row[1:], groups, strict=True))) for row in numbers]
    summary = "; ".join(f"{name}: {text}" for name, text in zip(values, words, strict=True))
    chart = chart.properties(width=WIDTH, height=max(60, (10 + 10 * len(groups)) * len(values)), autosize=_FIT)
    return figure(title, chart, summary, ["name", *groups], numbers)


def _points(series: Sequence[Series]) -> list[Datum]:
    return [{"x": x, "y": y, "series": line.name} for line in series for x, y in zip(line.x, line.y, strict=True)]


def _course(line: Series, x_label: str) -> str:
    if not line.x:
        return f"{line.name}: no points"
    first, last = [f"{line.y[at]:.3g} at {x_label} {line.x[at]:g}" for at in (0, -1)]
    return f"{line.name}: {first}" if len(line.x) == 1 else f"{line.name}: from {first} to {last}"


def _columns(lines: Sequence[Series], x_label: str) -> tuple[list[str], list[list[str]]]:
    values = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    xs = sorted({x for line in lines for x in line.x})
    numbers = [[f"{x:g}", *(f"{line[x]:.4g}" if x in line else "–" for line in values)] for x in xs]
    return [x_label, *(line.name for line in lines)], numbers


def colours(field: str, names: Sequence[str], width: float = WIDTH, legend: bool = True) -> Any:
    """Colour by a field, in the order of `names`; the legend is no wider than the plot where its words allow it."""
    names = list(dict.fromkeys(names))
    scale = altair.Scale(domain=names, range=[_COLOURS[at % len(_COLOURS)] for at in range(len(names))])
    entry = LETTER * max(map(len, names), default=0) + SYMBOL
    shown = altair.Legend(columns=max(1, min(MOST_COLUMNS, int(width / entry)))) if legend else None
    return altair.Color(f"{field}:N", scale=scale, legend=shown)


def inline(points: Sequence[Mapping[str, object]]) -> Any:
    """Data inside a plot's description."""
    return altair.InlineData(list(points))


def specification(chart: Any) -> Specification:
    """The plot as Vega-Lite reads it, in the page's colours."""
    description: Specification = chart.configure(**_VEGA_CONFIG).to_dict()
    return description


def draw_svg(spec: Specification) -> Markup:
    """The plot as SVG."""
    return Markup(vl_convert.vegalite_to_svg(spec))


@cache
def read_vega() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script, from the installed package: nothing is loaded."""
    licence = "/* Vega, Vega-Lite and vega-embed, under their BSD 3-clause licences */\n"
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(licence + script.replace("</script", "<\\/script"))


def figure(title: str, chart: Any, summary: str, head: Sequence[str], numbers: Sequence[Sequence[str]]) -> Markup:
    """An Altair chart with its caption, a summary for those who cannot see it, and MOST_ROWS of its numbers."""
    spec, selected = specification(chart), evenly(numbers)
    some = f", {len(selected)} of {len(numbers):,} rows" if len(selected) < len(numbers) else ""
    grid = PageTable(f"{title}{some}", head, selected)
    return fragment("_grid.html", "drawn", title, summary, draw_svg(spec), spec, grid)


def evenly(numbers: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """At most MOST_ROWS of the rows, evenly chosen, the first and the last among them."""
    if len(numbers) <= MOST_ROWS:
        return list(numbers)
    return [numbers[at] for at in np.linspace(0, len(numbers) - 1, MOST_ROWS).round().astype(int)]
