"""Charts: their data and scales by hand, what they say in words, escaping."""

import json
import math
import re

import pytest

from tandem.extras.report.charts import (
    MOST_POINTS,
    MOST_ROWS,
    Series,
    draw_bars,
    draw_histogram,
    draw_lines,
    draw_points,
    read_vega,
    reduce_series,
    select_evenly,
)


def spec(figure):
    """The description that Vega reads."""
    return json.loads(re.search(r'class="spec">(.*?)</script>', figure)[1])


def data(figure):
    (rows,) = spec(figure)["datasets"].values()
    return rows


def test_thinning_keeps_means_and_drops_what_is_no_number():
    series = reduce_series(Series("loss", list(range(3000)), [1.0, 3.0] * 1500))
    assert len(series.x) == MOST_POINTS
    assert set(series.y) == {2.0}
    assert series.x[0] == 4.5
    assert reduce_series(Series("a", [1, 2, 3], [5, math.nan, math.inf])) == Series("a", [1], [5])


def test_a_line_chart_by_hand():
    chart = draw_lines(
        "<loss>",
        [Series("a&b", [0, 1, 2], [1, math.nan, 3]), Series("one", [1], [2])],
        "step",
        "nats",
    )
    assert data(chart) == [
        {"x": 0, "y": 1, "series": "a&b"}, {"x": 2, "y": 3, "series": "a&b"}, {"x": 1, "y": 2, "series": "one"}
    ]  # fmt: skip
    assert "<loss>" not in chart
    assert chart.startswith('<figure class="chart"><figcaption>&lt;loss&gt;</figcaption>')
    label = "&lt;loss&gt;. a&amp;b: from 1 at step 0 to 3 at step 2; one: 2 at step 1"
    assert f'role="img" aria-label="{label}"' in chart
    vega = spec(chart)
    assert vega["encoding"]["color"]["scale"] == {
        "domain": ["a&b", "one"],
        "range": ["var(--c0)", "var(--c1)"],
    }
    assert vega["encoding"]["x"]["scale"]["type"] == "linear"
    picture = chart[chart.index("<svg") : chart.index("</svg>")]
    assert 'stroke="var(--c1)"' in picture  # the picture is there before any script
    assert re.findall(r"<td[^>]*>(.*?)</td>", chart) == [
        "0",
        "1",
        "–",
        "1",
        "–",
        "2",
        "2",
        "3",
        "–",
    ]


def test_an_axis_may_be_logarithmic():
    chart = draw_lines("c", [Series("a", [0.1, 10], [1, 3])], "ms", "recall", log=True)
    assert data(chart)[1] == {"x": 10, "y": 3, "series": "a"}
    assert spec(chart)["mark"]["type"] == "line"
    assert spec(chart)["encoding"]["x"]["scale"]["type"] == "log"


def test_histogram_shares_by_hand():
    chart = draw_histogram("h", [0, 1, 2], {"positives": [1, 3], "none": [0, 0]}, "score")
    shares = [(row["x"], row["share"]) for row in data(chart) if row["group"] == "positives (4)"]
    assert shares == [(0, 25), (1, 75), (2, 75)]  # the last step ends at the last edge
    assert "positives (4): most from 1 to 2" in chart


def test_bars_and_points_say_their_numbers():
    chart = draw_bars(
        "Time", {"Training": {"seconds": 90}, "Scores": {"seconds": 1.5}}, "seconds", ".1f"
    )
    assert [row["value"] for row in data(chart)] == [90, 1.5]
    assert "Time. Training: 90.0 seconds; Scores: 1.5 seconds" in chart
    assert spec(chart)["encoding"]["color"]["legend"] is None
    assert re.findall(r"<th [^>]*>(?:<[^>]+>)*([^<]+)", chart) == [
        "name",
        "seconds",
        "Training",
        "Scores",
    ]
    assert data(draw_points("s", [Series("a", [1, 2], [3, 4])], "x", "y"))[1] == {
        "x": 2,
        "y": 4,
        "series": "a",
    }


def test_a_smoothed_line_is_a_mean_over_a_tenth_of_its_points():
    chart = draw_lines(
        "c", [Series("a", list(range(40)), [1.0, 3.0] * 20)], "step", "nats", smooth=True
    )
    faint, smooth = spec(chart)["layer"]
    assert faint["encoding"]["opacity"] == {"value": 0.25}
    assert smooth["transform"] == [
        {
            "window": [{"op": "mean", "field": "y", "as": "y"}],
            "frame": [-2, 2],
            "groupby": ["series"],
        }
    ]
    assert "c (thick: means of 5 neighbours)" in chart
    assert len(data(chart)) == 40  # the points themselves are all there
    few = draw_lines("c", [Series("a", [1, 2], [3, 4])], "step", "nats", smooth=True)
    assert "layer" not in spec(few)


@pytest.mark.parametrize(
    ("count", "expected"), [(3, [0, 1, 2]), (MOST_ROWS, list(range(MOST_ROWS)))]
)
def test_few_rows_are_all_shown(count, expected):
    assert select_evenly([[str(at)] for at in range(count)]) == [[str(at)] for at in expected]


def test_many_rows_are_chosen_evenly():
    assert select_evenly([[str(at)] for at in range(23)]) == [[str(at)] for at in range(0, 23, 2)]


def test_a_plot_is_the_same_whenever_it_is_drawn():
    inputs = ("c", [Series("a", [1, 2], [3, 4])], "x", "y")
    assert draw_lines(*inputs) == draw_lines(*inputs)
    assert 'id="' not in draw_lines(*inputs)  # two plots of a page would have the same


def test_the_bundle_can_stand_in_a_page():
    assert "</script" not in read_vega()
    assert "vegaEmbed" in read_vega()


def test_before_and_after_stand_side_by_side():
    values = {"bm25": {"before": 40, "after": 45.5}, "de": {"before": 50, "after": 61}}
    chart = draw_bars("RR@10", values, "RR@10, %")
    assert [(row["name"], row["group"], row["value"]) for row in data(chart)] == [
        ("bm25", "before", 40), ("bm25", "after", 45.5), ("de", "before", 50), ("de", "after", 61)
    ]  # fmt: skip
    assert spec(chart)["encoding"]["yOffset"]["field"] == "group"
    assert "bm25: 40.00 before, 45.50 after; de: 50.00 before, 61.00 after" in chart
