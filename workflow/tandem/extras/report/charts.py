"""Plots by Altair: lines, points, histograms and bars, in figures of the page.

A plot is drawn once as SVG, which needs no script, and described to Vega, which makes it interactive. Colours are the
style sheet's variables, so that a plot changes from light to dark with the page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, compress, pairwise
from typing import Any

import altair
import numpy as np
import vl_convert
from markupsafe import Markup

from tandem.extras.report.page import render_macro
from tandem.report.grids import PageTable

Datum = dict[str, Any]  # a row of a plot's data
Specification = dict[str, object]  # a plot as Vega-Lite reads it
WIDTH = 400
HEIGHT = 190
CHART_SIZE = {"width": WIDTH, "height": HEIGHT}  # in pixels; the page scales it
_COLOURS = [f"var(--c{at})" for at in range(8)]  # the style sheet's; further series reuse them
MOST_ROWS = 12  # of the table of numbers below a plot
# for a legend: the most columns, and the widths of a letter and of a symbol, in pixels
_MOST_COLUMNS = 4
_LETTER = 6.8
SYMBOL = 30
# names next to the axis count as part of the width
_FIT = altair.AutoSizeParams(type="fit-x", contains="padding")
MOST_POINTS = 300
_DOTS = 24  # a line with at most so many points has them marked

_AXIS = {
    **dict.fromkeys(("labelColor", "titleColor", "domainColor"), "var(--quiet)"),
    **dict.fromkeys(("gridColor", "tickColor"), "var(--line)"),
    **{"titleFontWeight": "normal", "labelFontSize": 11, "titleFontSize": 11.5, "labelLimit": 220},
}
_LEGEND = {
    "orient": "bottom",
    "title": None,
    "labelColor": "var(--ink)",
    "labelFontSize": 12,
    "labelLimit": 340,
}
_VEGA_CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "aria": False,  # the figure has one description; Vega would have each mark read out
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


def reduce_series(series: Series) -> Series:
    """Return the series' finite points, reduced to at most MOST_POINTS means over equally many neighbours."""
    is_known = [math.isfinite(value) for value in series.y]
    x = list(compress(series.x, is_known))
    y = list(compress(series.y, is_known))
    if len(x) > MOST_POINTS:
        x = [float(part.mean()) for part in np.array_split(x, MOST_POINTS)]
        y = [float(part.mean()) for part in np.array_split(y, MOST_POINTS)]
    return Series(series.name, x, y)


def draw_lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    log: bool = False,
    smooth: bool = False,
) -> Markup:
    """Draw lines over a common x, logarithmic with `log`; the legend is below.

    With `smooth` the lines are running means over a tenth of the points, and the points themselves are faint.
    """
    lines = [reduce_series(line) for line in series]
    data = _list_points(lines)
    most = max((len(line.x) for line in lines), default=0)
    scale_options = {"type": "log"} if log else {"type": "linear", "zero": False}
    scale = altair.Scale(**scale_options, nice=False)
    is_whole = all(float(point["x"]).is_integer() for point in data)
    axis = altair.Axis(tickMinStep=1) if is_whole else altair.Axis()
    chosen = altair.selection_point(name="chosen", fields=["series"], bind="legend")
    base = altair.Chart(embed_data(data)).encode(
        x=altair.X("x:Q", title=x_label, scale=scale, axis=axis),
        y=altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False)),
        color=set_colours("series", [line.name for line in lines]),
        tooltip=[
            "series:N",
            altair.Tooltip("x:Q", title=x_label),
            altair.Tooltip("y:Q", title=y_label, format=".4~g"),
        ],
        opacity=altair.when(chosen).then(altair.value(1)).otherwise(altair.value(0.15)),
    )
    chart = base.mark_line(point=most <= _DOTS, strokeWidth=2).add_params(chosen)
    around = most // 20
    if smooth and around:
        means = chart.transform_window(y="mean(y)", frame=[-around, around], groupby=["series"])
        chart = base.mark_line(strokeWidth=1).encode(opacity=altair.value(0.25)) + means
        title += f" (thick: means of {2 * around + 1} neighbours)"
    summary = "; ".join(_describe_course(line, x_label) for line in lines)
    head, numbers = _list_columns(lines, x_label)
    return draw_figure(title, chart.properties(**CHART_SIZE), summary, head, numbers)


def draw_points(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Markup:
    """Draw points, each series in its colour; the legend is below."""
    data = _list_points(series)
    chart = altair.Chart(embed_data(data)).mark_point(filled=True, size=60, opacity=0.9)
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False)),
        y=altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False)),
        color=set_colours("series", [points.name for points in series]),
        tooltip=[
            "series:N",
            altair.Tooltip("x:Q", title=x_label),
            altair.Tooltip("y:Q", title=y_label),
        ],
    )
    summary = f"{len(data)} points of {len(series)} series"
    numbers = [[point["series"], f"{point['x']:g}", f"{point['y']:.4g}"] for point in data]
    return draw_figure(
        title, chart.properties(**CHART_SIZE), summary, ["series", x_label, y_label], numbers
    )


def draw_histogram(
    title: str, edges: Sequence[float], counts: Mapping[str, Sequence[int]], x_label: str
) -> Markup:
    """Draw steps of several groups over the same edges, each as a share of its group."""
    names = {group: f"{group} ({sum(ns):,})" for group, ns in counts.items()}
    shares = {group: [100 * n / max(1, sum(ns)) for n in ns] for group, ns in counts.items()}
    # A step ends at the last edge: the last bin's share is repeated there.
    data = []
    for group, bins in shares.items():
        for edge, share in zip(edges, [*bins, bins[-1]], strict=True):
            data.append({"x": edge, "share": round(share, 4), "group": names[group]})
    chart = altair.Chart(embed_data(data)).mark_area(
        interpolate="step-after", line={"strokeWidth": 2}, fillOpacity=0.18
    )
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False, nice=False)),
        y=altair.Y("share:Q", title="% of group", stack=None),
        color=set_colours("group", list(names.values())),
        tooltip=[
            "group:N",
            altair.Tooltip("x:Q", title="from"),
            altair.Tooltip("share:Q", title="%", format=".1f"),
        ],
    )
    modes = []
    for group, bins in shares.items():
        largest = max(range(len(bins)), key=bins.__getitem__)
        modes.append(f"{names[group]}: most from {edges[largest]:g} to {edges[largest + 1]:g}")
    numbers = []
    for number, (left, right) in enumerate(pairwise(edges)):
        numbers.append([f"{left:g} to {right:g}", *(f"{ns[number]:,}" for ns in counts.values())])
    return draw_figure(
        title, chart.properties(**CHART_SIZE), "; ".join(modes), [x_label, *counts], numbers
    )


def draw_bars(
    title: str, values: Mapping[str, Mapping[str, float]], x_label: str, form: str = ".2f"
) -> Markup:
    """Draw horizontal bars, one below another for each name: `{"bm25": {"before": 40, "after": 45.5}}`."""
    groups = list(dict.fromkeys(chain.from_iterable(values.values())))
    data = []
    for name, by_group in values.items():
        for group, value in by_group.items():
            data.append({"name": name, "group": group, "value": round(value, 4)})
    chart = altair.Chart(embed_data(data)).mark_bar()
    chart = chart.encode(
        x=altair.X("value:Q", title=x_label),
        y=altair.Y("name:N", title=None, sort=None),
        yOffset=altair.YOffset("group:N", sort=groups),
        color=set_colours("group", groups, legend=len(groups) > 1),
        tooltip=["name:N", "group:N", altair.Tooltip("value:Q", title=x_label, format=form)],
    )
    numbers = []
    summary = []
    for name, by_group in values.items():
        formatted = [f"{by_group[group]:{form}}" for group in groups]
        numbers.append([name, *formatted])
        words = [f"{value} {group}" for value, group in zip(formatted, groups, strict=True)]
        summary.append(f"{name}: {', '.join(words)}")
    height = max(60, (10 + 10 * len(groups)) * len(values))
    chart = chart.properties(width=WIDTH, height=height, autosize=_FIT)
    return draw_figure(title, chart, "; ".join(summary), ["name", *groups], numbers)


def _list_points(series: Sequence[Series]) -> list[Datum]:
    points: list[Datum] = []
    for line in series:
        points += [
            {"x": x, "y": y, "series": line.name} for x, y in zip(line.x, line.y, strict=True)
        ]
    return points


def _describe_course(line: Series, x_label: str) -> str:
    if not line.x:
        return f"{line.name}: no points"
    first = f"{line.y[0]:.3g} at {x_label} {line.x[0]:g}"
    last = f"{line.y[-1]:.3g} at {x_label} {line.x[-1]:g}"
    return f"{line.name}: {first}" if len(line.x) == 1 else f"{line.name}: from {first} to {last}"


def _list_columns(lines: Sequence[Series], x_label: str) -> tuple[list[str], list[list[str]]]:
    head = [x_label, *(line.name for line in lines)]
    values = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    numbers = []
    for x in sorted(set(chain.from_iterable(values))):
        numbers.append([f"{x:g}", *(f"{line[x]:.4g}" if x in line else "–" for line in values)])
    return head, numbers


def set_colours(field: str, names: Sequence[str], width: float = WIDTH, legend: bool = True) -> Any:
    """Colour by a field, in the order of `names`; the legend is no wider than the plot, if its words allow that."""
    names = list(dict.fromkeys(names))
    colours = [_COLOURS[number % len(_COLOURS)] for number in range(len(names))]
    scale = altair.Scale(domain=names, range=colours)
    if not legend:
        return altair.Color(f"{field}:N", scale=scale, legend=None)
    entry_width = _LETTER * max(map(len, names), default=0) + SYMBOL
    columns = max(1, min(_MOST_COLUMNS, int(width / entry_width)))
    return altair.Color(f"{field}:N", scale=scale, legend=altair.Legend(columns=columns))


def embed_data(points: Sequence[Mapping[str, object]]) -> Any:
    """Put data inside a plot's description."""
    return altair.InlineData(list(points))


def make_specification(chart: Any) -> Specification:
    """Return the plot as Vega-Lite reads it, in the page's colours."""
    description: Specification = chart.configure(**_VEGA_CONFIG).to_dict()
    return description


def draw_svg(spec: Specification) -> Markup:
    """Return the plot as SVG."""
    return Markup(vl_convert.vegalite_to_svg(spec))


@cache
def read_vega() -> Markup:
    """Read Vega, Vega-Lite and vega-embed as one script, from the installed package: the page loads nothing."""
    licence = "/* Vega, Vega-Lite and vega-embed, under their BSD 3-clause licences */\n"
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(licence + script.replace("</script", "<\\/script"))


def draw_figure(
    title: str, chart: Any, summary: str, head: Sequence[str], numbers: Sequence[Sequence[str]]
) -> Markup:
    """Return an Altair chart with its caption, a summary for those who cannot see it, and MOST_ROWS of its numbers."""
    spec = make_specification(chart)
    selected = select_evenly(numbers)
    some = f", {len(selected)} of {len(numbers):,} rows" if len(selected) < len(numbers) else ""
    grid = PageTable(f"{title}{some}", head, selected)
    return render_macro("_grid.html", "drawn", title, summary, draw_svg(spec), spec, grid)


def select_evenly(numbers: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return at most MOST_ROWS of the rows, evenly chosen, the first and the last among them."""
    if len(numbers) <= MOST_ROWS:
        return list(numbers)
    rows = np.linspace(0, len(numbers) - 1, MOST_ROWS).round().astype(int)
    return [numbers[row] for row in rows]
