"""Tables (pandas) and plots (Altair) of the notebooks, from the artifacts of the analyses."""

import json
from math import ceil
from typing import Any

import altair
import pandas as pd

from tandem.contrib.analysis.options import DYNAMICS_FILE, NEGATIVES_FILE
from tandem.contrib.analysis.wrong_results import PAIRS, SUMMARY, TYPES
from tandem.store.artifact import Artifact

_PLOT_SIZE = {"width": 420, "height": 220}  # of a plot
_BINS = 20
MEASURE_NAMES = {
    "entropy_de": "entropy, dual encoder",
    "entropy_ce": "entropy, cross-encoder",
    "kl": "KL(DE ‖ CE)",
    "tau": "Kendall's tau-b",
}


def read_analysis(artifact: Artifact) -> dict[str, Any]:
    """Return summary.json of an analysis."""
    return dict(json.loads(artifact.path(SUMMARY).read_text(encoding="utf-8")))


def count_guesses(errors: Artifact) -> pd.DataFrame:
    """Return how often each type was guessed: category, type, pairs, share in percent."""
    counts = (
        pd.Series(read_analysis(errors)["guesses"], name="pairs").rename_axis("type").reset_index()
    )
    counts.insert(0, "category", counts["type"].map(TYPES))
    return counts.assign(share=(100 * counts["pairs"] / counts["pairs"].sum()).round(1))


def _set_colour(column: str, **legend: Any) -> Any:
    return altair.Color(
        f"{column}:N", title=None, legend=altair.Legend(orient="bottom", columns=1, **legend)
    )


def plot_guesses(errors: Artifact) -> Any:
    """Draw bars of `count_guesses`, in the order of Table 10."""
    # labels are wider in a browser than Altair measures
    room = {"left": 30, "top": 5, "right": 5, "bottom": 5}
    bars = altair.Chart(count_guesses(errors), **_PLOT_SIZE, padding=room).mark_bar()
    return bars.encode(
        x=altair.X("share:Q", title="share of pairs, guessed (%)"),
        y=altair.Y("type:N", sort=list(TYPES), title=None, axis=altair.Axis(labelLimit=260)),
        color=_set_colour("category"),
    )


def show_examples(errors: Artifact, each: int = 2) -> pd.DataFrame:
    """Return the first pairs of each guessed type: query, passage, the labelled positive, and why."""
    rows = pd.read_parquet(errors.path(PAIRS)).groupby("guess", sort=False).head(each)
    rows = rows.sort_values("guess", key=lambda types: types.map(list(TYPES).index), kind="stable")
    return rows[["guess", "why", "query", "passage", "positive"]]


def average_by_step(dynamics: Artifact) -> pd.DataFrame:
    """Return the means over queries of entropies, KL and tau-b by step (the index), and the number of lists."""
    steps = pd.read_parquet(dynamics.path(DYNAMICS_FILE)).groupby("step")
    return steps[list(MEASURE_NAMES)].mean().assign(lists=steps.size())


def plot_dynamics(dynamics: Artifact, columns: tuple[str, ...], title: str) -> Any:
    """Draw means of `columns` (names of `MEASURE_NAMES`) over steps with the middle half of the queries as a band."""
    rows = (
        pd.read_parquet(dynamics.path(DYNAMICS_FILE))
        .melt("step", list(columns), "column", "value")
        .dropna()
    )
    values = rows.groupby(["step", "column"])["value"]
    statistics = {
        "mean": values.mean(),
        "low": values.quantile(0.25),
        "high": values.quantile(0.75),
    }
    bands = pd.DataFrame(statistics).reset_index()
    bands["column"] = bands["column"].map(MEASURE_NAMES)

    x = altair.X("step:Q", title="training step")
    base = altair.Chart(bands, **_PLOT_SIZE).encode(
        x=x, color=_set_colour("column", symbolOpacity=1)
    )
    band = base.mark_area(opacity=0.2).encode(y=altair.Y("low:Q", title=title), y2="high:Q")
    y = altair.Y("mean:Q", title=title, scale=altair.Scale(zero=False))
    return band + base.mark_line(point=True).encode(y=y)


def compare_sources(hardness: Artifact) -> pd.DataFrame:
    """Return a row for each source: its queries and negatives, and the negatives' median rank.

    If there are judges, the row also has their median probability for negatives, and the shares of negatives and of
    labelled positives that they find relevant.
    """
    rows = {}
    for name, source in read_analysis(hardness)["sources"].items():
        rows[name] = {
            "queries": source["queries"],
            "negatives": source["negatives"],
            "median rank": source["rank"][1] if source["rank"] else None,
            "median judge": source["judge"][1] if source.get("judge") else None,
            "judged false (%)": source.get("false_negatives"),
            "positives found (%)": source.get("found_positives"),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def count_dropped(hardness: Artifact) -> pd.DataFrame:
    """Return how many passages each rule removed when a model's lists were drawn, over all queries; a row per model."""
    return (
        pd.DataFrame.from_dict(read_analysis(hardness)["dropped"], orient="index")
        .fillna(0)
        .astype(int)
    )


def plot_hardness(hardness: Artifact, column: str) -> Any:
    """Draw a histogram of each source's negatives, as shares of them; `column` is `judge`, or `rank` in the run."""
    rows = pd.read_parquet(
        hardness.path(NEGATIVES_FILE), columns=["source", "label", "rank", "judge"]
    )
    rows = rows[rows["label"] == 0].dropna(subset=[column])
    if column == "rank":
        rows = rows[rows["rank"] > 0]  # random passages have no rank

    bins = pd.cut(
        rows[column], bins=cut_bins(rows[column], whole=column == "rank"), include_lowest=True
    )
    middles = bins.map(lambda interval: interval.mid).astype(float)
    sizes = rows.assign(middle=middles).groupby(["source", "middle"]).size()
    shares = 100 * sizes / sizes.groupby("source").transform("sum")

    title = "probability of relevance, by the judges" if column == "judge" else "rank in the run"
    lines = altair.Chart(shares.rename("share").reset_index(), **_PLOT_SIZE).mark_line(point=True)
    return lines.encode(
        x=altair.X("middle:Q", title=title),
        y=altair.Y("share:Q", title="share of the source's negatives (%)"),
        color=_set_colour("source", labelLimit=400),
    )


def cut_bins(values: "pd.Series[Any]", whole: bool) -> list[float]:
    """Return the edges of a few bins that cover all values; each bin of whole numbers covers equally many numbers."""
    if not whole:
        return [edge / _BINS for edge in range(_BINS + 1)]
    last = int(values.max()) if len(values) else 1
    width = ceil(last / _BINS)
    # edges lie between whole numbers, so that no value is on an edge
    return [0.5 + width * edge for edge in range(ceil(last / width) + 1)]
