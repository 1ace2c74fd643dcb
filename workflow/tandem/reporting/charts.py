"""Line charts, scatter plots, histograms and bars, as Altair specifications in figures of the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import altair
import numpy as np
from markupsafe import Markup

from tandem.reporting.vega import HEIGHT, LETTER, WIDTH, colours, figure, label_width, rows

MOST_POINTS = 300
DOTS = 24  # a line of no more points has them marked


@dataclass(frozen=True)
class Series:
    """A line: its name, its points in ascending x, and where it is known the range of each point."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def thinned(series: Series) -> Series:
    """Its finite points, at most MOST_POINTS of them: means of equal numbers of neighbours."""
    if not all(map(math.isfinite, series.y)):
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(y)]
        series = Series(series.name, [x for x, _ in known], [y for _, y in known])
    if len(series.x) <= MOST_POINTS:
        return series
    parts = zip(np.array_split(series.x, MOST_POINTS), np.array_split(series.y, MOST_POINTS), strict=True)
    means = [(float(x.mean()), float(y.mean())) for x, y in parts]
    return Series(series.name, [x for x, _ in means], [y for _, y in means])


def line_chart(title: str, series: Sequence[Series], x_label: str, y_label: str, log: bool = False) -> Markup:
    """Lines over a common x, logarithmic if told, with a band where ranges are known; the legend stands below."""
    lines = [thinned(one) for one in series]
    data = [point for one in lines for point in _points(one)]
    names = list(dict.fromkeys(one.name for one in lines))
    scale = altair.Scale(type="log", nice=False) if log else altair.Scale(type="linear", zero=False, nice=False)
    whole = all(float(point["x"]).is_integer() for point in data)
    base = altair.Chart(rows(data)).encode(
        x=altair.X("x:Q", title=x_label, scale=scale, axis=altair.Axis(tickMinStep=1) if whole else altair.Axis()),
        color=colours("series", names),
    )
    chosen = altair.selection_point(name="chosen", fields=["series"], bind="legend")
    tiny = max((abs(point["y"]) for point in data), default=1) < 1e-3
    axis = altair.Axis(labelExpr="datum.value === 0 ? '0' : format(datum.value, '~e')") if tiny else altair.Axis()
    value = altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False), axis=axis)
    shown = ["series:N", altair.Tooltip("x:Q", title=x_label), altair.Tooltip("y:Q", title=y_label, format=".4~g")]
    dotted = max((len(one.x) for one in lines), default=0) <= DOTS
    drawn = base.mark_line(point=dotted, strokeWidth=2).encode(
        y=value, tooltip=shown, opacity=altair.when(chosen).then(altair.value(1)).otherwise(altair.value(0.15))
    )
    if any(one.low for one in lines):
        drawn = base.mark_area(opacity=0.15).encode(y=altair.Y("low:Q", title=y_label), y2="high:Q") + drawn
    told = "; ".join(_course(one, x_label) for one in lines)
    return figure(title, _sized(drawn.add_params(chosen)), told, *_columns(lines, x_label))


def scatter(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Markup:
    """Points, each series in its colour; the legend stands below."""
    data = [point for one in series for point in _points(one)]
    chart = altair.Chart(rows(data)).mark_point(filled=True, size=60, opacity=0.9)
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False)),
        y=altair.Y("y:Q", title=y_label, scale=altair.Scale(zero=False)),
        color=colours("series", list(dict.fromkeys(one.name for one in series))),
        tooltip=["series:N", altair.Tooltip("x:Q", title=x_label), altair.Tooltip("y:Q", title=y_label)],
    )
    told = f"{len(data)} points of {len(series)} series"
    numbers = [[point["series"], f"{point['x']:g}", f"{point['y']:.4g}"] for point in data]
    return figure(title, _sized(chart), told, ["", x_label, y_label], numbers)


def histogram(title: str, edges: Sequence[float], counts: dict[str, Sequence[int]], x_label: str) -> Markup:
    """Steps of several groups over the same edges, each as a share of its group."""
    names = {group: f"{group} ({sum(ns):,})" for group, ns in counts.items()}
    shares = {group: [100 * n / max(1, sum(ns)) for n in ns] for group, ns in counts.items()}
    # A step ends at the last edge: the last bin's share stands there again.
    data = [
        {"x": edge, "share": round(share, 4), "group": names[group]}
        for group, bins in shares.items()
        for edge, share in zip(edges, [*bins, bins[-1]], strict=True)
    ]
    chart = altair.Chart(rows(data)).mark_area(interpolate="step-after", line={"strokeWidth": 2}, fillOpacity=0.18)
    chart = chart.encode(
        x=altair.X("x:Q", title=x_label, scale=altair.Scale(zero=False, nice=False)),
        y=altair.Y("share:Q", title="% of group", stack=None),
        color=colours("group", list(names.values())),
        tooltip=["group:N", altair.Tooltip("x:Q", title="from"), altair.Tooltip("share:Q", title="%", format=".1f")],
    )
    modes = [(name, max(range(len(bins)), key=bins.__getitem__)) for name, bins in shares.items()]
    told = "; ".join(f"{names[name]}: most from {edges[at]:g} to {edges[at + 1]:g}" for name, at in modes)
    numbers = [
        [f"{left:g} to {right:g}", *(f"{ns[at]:,}" for ns in counts.values())]
        for at, (left, right) in enumerate(pairwise(edges))
    ]
    return figure(title, _sized(chart), told, [x_label, *counts], numbers)


def bars(title: str, values: dict[str, float], x_label: str, words: dict[str, str]) -> Markup:
    """Horizontal bars in the order given; `words` says each value for the pointer and the table."""
    data = [{"name": name, "value": value, "said": words[name]} for name, value in values.items()]
    chart = altair.Chart(rows(data)).mark_bar(color="var(--c0)")
    chart = chart.encode(
        x=altair.X("value:Q", title=x_label),
        y=altair.Y("name:N", title=None, sort=None),
        tooltip=["name:N", altair.Tooltip("said:N", title=x_label)],
    )
    told = "; ".join(f"{name} {words[name]}" for name in values)
    chart = chart.properties(width=_beside(list(values)), height=max(40, 20 * len(data)))
    return figure(title, chart, told, ["", x_label], [[name, words[name]] for name in values])


def before_after(title: str, values: dict[str, tuple[float, float]], x_label: str) -> Markup:
    """Two bars below one another for each name: before and after."""
    when = ("before", "after")
    data = [
        {"name": name, "when": word, "value": round(value, 4)}
        for name, pair in values.items()
        for word, value in zip(when, pair, strict=True)
    ]
    width = _beside(list(values))
    chart = altair.Chart(rows(data)).mark_bar()
    chart = chart.encode(
        x=altair.X("value:Q", title=x_label),
        y=altair.Y("name:N", title=None, sort=None),
        yOffset=altair.YOffset("when:N", sort=list(when)),
        color=colours("when", when, width),
        tooltip=["name:N", "when:N", altair.Tooltip("value:Q", title=x_label, format=".2f")],
    )
    told = "; ".join(f"{name}: {old:.2f} before, {new:.2f} after" for name, (old, new) in values.items())
    numbers = [[name, f"{old:.2f}", f"{new:.2f}"] for name, (old, new) in values.items()]
    return figure(title, chart.properties(width=width, height=max(60, 30 * len(values))), told, ["", *when], numbers)


def _beside(names: Sequence[str]) -> float:
    """What is left of the usual width beside the longest name, so that letters are as large as in other plots."""
    return max(WIDTH / 2, WIDTH - label_width(names, LETTER, -20))


def _sized(chart: Any) -> Any:
    """The usual size in pixels; the page scales it."""
    return chart.properties(width=WIDTH, height=HEIGHT)


def _points(one: Series) -> list[dict[str, Any]]:
    """Its points as rows of x, y, series, and low and high where they are known."""
    points: list[dict[str, Any]] = []
    for at, (x, y) in enumerate(zip(one.x, one.y, strict=True)):
        points.append({"x": x, "y": y, "series": one.name})
        points[-1] |= {"low": one.low[at], "high": one.high[at]} if one.low else {}
    return points


def _course(one: Series, x_label: str) -> str:
    """`loss: from 1.4 at step 0 to 0.45 at step 115`."""
    if not one.x:
        return f"{one.name}: no points"
    first, last = [f"{one.y[at]:.3g} at {x_label} {one.x[at]:g}" for at in (0, -1)]
    return f"{one.name}: {first}" if len(one.x) == 1 else f"{one.name}: from {first} to {last}"


def _columns(lines: Sequence[Series], x_label: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the numbers: x, then a column for each line."""
    at = [dict(zip(one.x, one.y, strict=True)) for one in lines]
    xs = sorted({x for one in lines for x in one.x})
    numbers = [[f"{x:g}", *(f"{line[x]:.4g}" if x in line else "–" for line in at)] for x in xs]
    return [x_label, *(one.name for one in lines)], numbers
