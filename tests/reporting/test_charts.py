"""Charts: ticks, scales by hand, escaping."""

import math

import pytest

from tandem.reporting.charts import (
    HEIGHT,
    LEFT,
    MOST_POINTS,
    WIDTH,
    Plane,
    Series,
    decades,
    histogram,
    line_chart,
    thinned,
    ticks,
)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.03, 0.11, [0.04, 0.06, 0.08, 0.1]),
        (0, 4800, [0, 1000, 2000, 3000, 4000]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (7, 7, [7]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == expected


def test_plane_maps_corners():
    plane = Plane((0, 10), (0, 2))
    assert (plane.across(0), plane.across(10)) == (LEFT, WIDTH - 14)
    assert (plane.down(0), plane.down(2)) == (HEIGHT - 44, 14)
    assert plane.down(1) == (HEIGHT - 44 + 14) / 2


def test_a_logarithmic_axis_by_hand():
    assert decades(math.log10(0.03), math.log10(4)) == [0.05, 0.1, 0.2, 0.5, 1, 2]
    plane = Plane((0.1, 10), (0, 1), log=True)
    assert plane.across(1) == round((LEFT + WIDTH - 14) / 2, 1)
    chart = line_chart("c", [Series("a", [0.1, 1, 10], [1, 2, 3])], "ms", "recall", log=True)
    across = [float(part.split('"')[0]) for part in chart.split('cx="')[1:]]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.11)


def test_thinning_keeps_means():
    series = thinned(Series("loss", list(range(3000)), [1.0, 3.0] * 1500))
    assert len(series.x) == MOST_POINTS
    assert set(series.y) == {2.0}
    assert series.x[0] == 4.5


def test_line_chart_draws_each_series_and_escapes():
    chart = line_chart("<loss>", [Series("a&b", [0, 1, 2], [1, math.nan, 3]), Series("one", [1], [2])], "step", "nats")
    assert chart.count("<polyline") == 2
    assert chart.count("<circle") == 3
    assert "a&amp;b" in chart
    assert "&lt;loss&gt;" in chart
    assert "nan" not in chart


def test_histogram_shares_by_hand():
    chart = histogram("h", [0, 1, 2], {"positives": [1, 3], "none": [0, 0]}, "score")
    plane = Plane((0, 2), (0, 75))
    assert f'y="{plane.down(25)}"' in chart
    assert f'y="{plane.down(75)}"' in chart
    assert "positives (4)" in chart
