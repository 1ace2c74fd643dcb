"""Plots by Altair: drawn once as SVG, which needs no script, and described to Vega, which makes it answer the pointer.

Colours are the style sheet's variables, so that a plot follows the page from light to dark.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair
import vl_convert
from markupsafe import Markup

from tandem.reporting.page import embedded

WIDTH, HEIGHT = 400, 190
COLOURS = [f"var(--c{at})" for at in range(8)]  # of the style sheet; more series begin again
MOST_ROWS = 12  # of the numbers below a plot
MOST_COLUMNS, LETTER, LEGEND_LETTER = 4, 6.0, 6.8  # of a legend; the mean width of a letter of an axis and of a legend

_AXIS = {
    "labelColor": "var(--quiet)",
    "titleColor": "var(--quiet)",
    "gridColor": "var(--line)",
    "domainColor": "var(--quiet)",
    "tickColor": "var(--line)",
    "titleFontWeight": "normal",
    "labelFontSize": 11,
    "titleFontSize": 11.5,
    "labelLimit": 220,
}
_LEGEND = {"orient": "bottom", "title": None, "labelColor": "var(--ink)", "labelFontSize": 12, "labelLimit": 340}
CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "aria": False,  # the figure is described as a whole; Vega would have every mark read out
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisX": {"tickCount": 6, "labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 6},
    "axisY": {"tickCount": 5},
    "legend": {**_LEGEND, "symbolStrokeWidth": 2.5, "symbolOpacity": 1},
}


def colours(field: str, names: Sequence[str], width: float = WIDTH, legend: bool = True) -> Any:
    """Colour by a field, names in the order given; the legend is no wider than the plot if it can be."""
    scale = altair.Scale(domain=list(names), range=[COLOURS[at % len(COLOURS)] for at in range(len(names))])
    columns = max(1, min(MOST_COLUMNS, int(width / label_width(names, LEGEND_LETTER, 30))))
    return altair.Color(f"{field}:N", scale=scale, legend=altair.Legend(columns=columns) if legend else None)


def label_width(names: Sequence[str], letter: float, more: float) -> float:
    """About how wide the longest of some labels is, in pixels, with `more` for what stands beside it."""
    return max((len(name) for name in names), default=0) * letter + more


def rows(values: Sequence[dict[str, Any]]) -> Any:
    """Data of a plot that stands in its description."""
    return altair.InlineData(list(values))


def specification(chart: Any) -> dict[str, Any]:
    """The plot as Vega-Lite reads it, in the page's colours."""
    made: dict[str, Any] = chart.configure(**CONFIG).to_dict()
    return made


def drawn(spec: dict[str, Any]) -> Markup:
    """The plot as SVG."""
    return Markup(vl_convert.vegalite_to_svg(spec))


@cache
def bundle() -> Markup:
    """Vega, Vega-Lite and vega-embed as one script, from the installed package: nothing is loaded."""
    licence = "/* Vega, Vega-Lite and vega-embed, under their BSD 3-clause licences */\n"
    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(licence + made.replace("</script", "<\\/script"))


def figure(title: str, chart: Any, told: str, head: Sequence[str], numbers: Sequence[Sequence[str]]) -> Markup:
    """A plot with its caption, its description for those who cannot see it, and its numbers.

    Args:
        title: the caption.
        chart: an Altair chart.
        told: what the plot shows, in words.
        head: titles of the columns of the numbers.
        numbers: their rows; at most MOST_ROWS are shown, evenly chosen, the first and the last among them.
    """
    spec = specification(chart)
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption><div class="plot" role="img" aria-label="{}">{}</div>'
        '<script type="application/json" class="spec">{}</script>{}</figure>'
    ).format(title, f"{title}. {told}", drawn(spec), embedded(spec), _numbers(title, head, numbers))


def _numbers(title: str, head: Sequence[str], numbers: Sequence[Sequence[str]]) -> Markup:
    """The numbers as a table that unfolds."""
    shown = evenly(numbers)
    some = f", {len(shown)} of {len(numbers):,} rows" if len(shown) < len(numbers) else ""
    titles = Markup().join(Markup('<th scope="col" class="num">{}</th>').format(word) for word in head)
    lines = Markup().join(
        Markup("<tr>{}</tr>").format(Markup().join(Markup('<td class="num">{}</td>').format(word) for word in row))
        for row in shown
    )
    return Markup(
        '<details class="numbers"><summary>Numbers<span class="unseen"> of {0}</span></summary><div class="scroll">'
        "<table><caption>{0}{1}</caption><thead><tr>{2}</tr></thead><tbody>{3}</tbody></table></div></details>"
    ).format(title, some, titles, lines)


def evenly(numbers: Sequence[Sequence[str]], most: int = MOST_ROWS) -> list[Sequence[str]]:
    """At most so many of the rows, evenly chosen, the first and the last among them."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[round(at * (len(numbers) - 1) / (most - 1))] for at in range(most)]
