"""Line charts and histograms as inline SVG with labelled axes; colours come from the page's style sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 230, 58, 14, 14, 44
MOST_POINTS = 300
COLOURS = 8  # of the style sheet; more series begin again


@dataclass(frozen=True)
class Series:
    """A line: its name, and its points in ascending x."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) that lie within the range."""
    if not low < high:
        return [low]
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten whose decimal logarithms lie within the range."""
    numbers = (m * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5))
    return [number for number in numbers if low - 1e-9 <= math.log10(number) <= high + 1e-9]


def thinned(series: Series) -> Series:
    """At most MOST_POINTS points: means of equal numbers of neighbours."""
    if len(series.x) <= MOST_POINTS:
        return series
    parts = zip(np.array_split(series.x, MOST_POINTS), np.array_split(series.y, MOST_POINTS), strict=True)
    means = [(float(x.mean()), float(y.mean())) for x, y in parts]
    return Series(series.name, [x for x, _ in means], [y for _, y in means])


class Plane:
    """The drawing area: from values to pixels, and the axes around it."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], log: bool = False) -> None:
        self.log = log
        self.x, self.y = _widened(self._scaled(x[0]), self._scaled(x[1])), _widened(*y)

    def _scaled(self, x: float) -> float:
        """The decimal logarithm on a logarithmic axis."""
        return math.log10(x) if self.log else x

    def across(self, value: float) -> float:
        """Pixels from the left."""
        return round(LEFT + (self._scaled(value) - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT), 1)

    def down(self, value: float) -> float:
        """Pixels from the top."""
        return round(HEIGHT - BOTTOM - (value - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM), 1)

    def axes(self, x_label: str, y_label: str) -> Markup:
        """Grid lines, ticks and labels."""
        foot, middle = HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2
        parts = []
        for value in ticks(*self.y):
            y = self.down(value)
            parts += [_rule("grid", y), _text("tick end", LEFT - 6, y + 4, _short(value))]
        marked = decades(*self.x) if self.log else ticks(*self.x)
        parts += [_text("tick", self.across(value), foot + 17, _short(value)) for value in marked]
        parts += [_rule("axis", foot), _text("label", (LEFT + WIDTH) / 2, HEIGHT - 8, x_label)]
        parts.append(
            Markup('<text class="label" transform="translate(14 {}) rotate(-90)">{}</text>').format(middle, y_label)
        )
        return Markup().join(parts)


def _rule(style: str, y: float) -> Markup:
    """A horizontal line through the drawing area."""
    return Markup('<line class="{0}" x1="{1}" x2="{2}" y1="{3}" y2="{3}"/>').format(style, LEFT, WIDTH - RIGHT, y)


def _text(style: str, x: float, y: float, words: str) -> Markup:
    """A piece of text."""
    return Markup('<text class="{}" x="{:g}" y="{:g}">{}</text>').format(style, x, y, words)


def line_chart(title: str, series: Sequence[Series], x_label: str, y_label: str, log: bool = False) -> Markup:
    """Lines over a common x, logarithmic if told; a series of one point is a dot. The legend stands below."""
    lines = [thinned(one) for one in series]
    xs, ys = [x for one in lines for x in one.x], [y for one in lines for y in one.y if math.isfinite(y)]
    plane = Plane((min(xs), max(xs)), (min(ys, default=0), max(ys, default=1)), log)
    drawn = [plane.axes(x_label, y_label)]
    for at, one in enumerate(lines):
        points = [(plane.across(x), plane.down(y)) for x, y in zip(one.x, one.y, strict=True) if math.isfinite(y)]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        drawn.append(Markup('<polyline class="line c{}" points="{}"/>').format(at % COLOURS, path))
        dots = points if len(points) <= 24 else []
        drawn += [Markup('<circle class="c{}" cx="{}" cy="{}" r="2.5"/>').format(at % COLOURS, x, y) for x, y in dots]
    return figure(title, drawn, [one.name for one in lines])


def scatter(title: str, series: Sequence[Series], x_label: str, y_label: str) -> Markup:
    """Points, each series in its colour; the legend stands below."""
    xs, ys = [x for one in series for x in one.x], [y for one in series for y in one.y]
    plane = Plane((min(xs), max(xs)), (min(ys), max(ys)))
    drawn = [plane.axes(x_label, y_label)]
    for at, one in enumerate(series):
        for x, y in zip(one.x, one.y, strict=True):
            dot = Markup('<circle class="c{}" cx="{}" cy="{}" r="4"/>')
            drawn.append(dot.format(at % COLOURS, plane.across(x), plane.down(y)))
    return figure(title, drawn, [one.name for one in series])


def histogram(title: str, edges: Sequence[float], counts: dict[str, Sequence[int]], x_label: str) -> Markup:
    """Overlaid bars of several groups over the same edges, each as a share of its group."""
    shares = {name: [100 * n / max(1, sum(ns)) for n in ns] for name, ns in counts.items()}
    highest = max((share for group in shares.values() for share in group), default=1)
    plane = Plane((edges[0], edges[-1]), (0, max(highest, 1e-9)))
    drawn = [plane.axes(x_label, "% of group")]
    for at, group in enumerate(shares.values()):
        for left, right, share in zip(edges[:-1], edges[1:], group, strict=True):
            x, y = plane.across(left), plane.down(share)
            size = (max(0.5, plane.across(right) - x - 1), plane.down(0) - y)
            bar = Markup('<rect class="bar c{}" x="{}" y="{}" width="{:.1f}" height="{:.1f}"/>')
            drawn.append(bar.format(at % COLOURS, x, y, *size))
    return figure(title, drawn, [f"{name} ({sum(ns):,})" for name, ns in counts.items()])


def figure(title: str, drawn: Sequence[Markup], names: Sequence[str]) -> Markup:
    """A figure with its title above and its legend below."""
    keys = [Markup('<span class="key c{}">{}</span>').format(at % COLOURS, name) for at, name in enumerate(names)]
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
        '<div class="legend">{}</div></figure>'
    ).format(title, WIDTH, HEIGHT, title, Markup().join(drawn), Markup(" ").join(keys))


def _widened(low: float, high: float) -> tuple[float, float]:
    """The range, never empty."""
    if low < high:
        return low, high
    pad = abs(low) * 0.1 or 1.0
    return low - pad, high + pad


def _short(value: float) -> str:
    """A tick's number: `12k`, `0.25`, `2e-05`."""
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"
