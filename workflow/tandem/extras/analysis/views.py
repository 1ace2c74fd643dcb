"""Tables (pandas) and plots (Altair) of the notebooks, from the artifacts of the analyses."""

import json
from typing import Any

import altair
import pandas as pd

from tandem.extras.analysis.errors import PAIRS, SUMMARY, TYPES
from tandem.store.artifact import Artifact

SIZE = {"width": 420, "height": 220}  # of a plot
BINS = 20
DYNAMICS, NEGATIVES = "dynamics.parquet", "negatives.parquet"  # of stages that import torch
NAMES = {
    "entropy_de": "entropy, dual encoder",
    "entropy_ce": "entropy, cross-encoder",
    "kl": "KL(DE ‖ CE)",
    "tau": "Kendall's tau-b",
}


def summary(artifact: Artifact) -> dict[str, Any]:
    """summary.json of an analysis."""
    return dict(json.loads(artifact.path(SUMMARY).read_text(encoding="utf-8")))


def guesses(errors: Artifact) -> pd.DataFrame:
    """How often each type was guessed: category, type, pairs, share in percent."""
    counts = pd.Series(summary(errors)["guesses"], name="pairs").rename_axis("type").reset_index()
    counts.insert(0, "category", counts["type"].map(TYPES))
    return counts.assign(share=(100 * counts["pairs"] / counts["pairs"].sum()).round(1))


def _colour(column: str, **legend: Any) -> Any:
    return altair.Color(f"{column}:N", title=None, legend=altair.Legend(orient="bottom", columns=1, **legend))


def guesses_plot(errors: Artifact) -> Any:
    """Bars of `guesses`, in the order of Table 10."""
    room = {"left": 30, "top": 5, "right": 5, "bottom": 5}  # labels are wider in a browser than they are measured
    bars = altair.Chart(guesses(errors), **SIZE, padding=room).mark_bar()
    return bars.encode(
        x=altair.X("share:Q", title="share of pairs, guessed (%)"),
        y=altair.Y("type:N", sort=list(TYPES), title=None, axis=altair.Axis(labelLimit=260)),
        color=_colour("category"),
    )


def examples(errors: Artifact, each: int = 2) -> pd.DataFrame:
    """The first pairs of each guessed type: query, passage, the labelled positive, and why."""
    rows = pd.read_parquet(errors.path(PAIRS)).groupby("guess", sort=False).head(each)
    rows = rows.sort_values("guess", key=lambda types: types.map(list(TYPES).index), kind="stable")
    return rows[["guess", "why", "query", "passage", "positive"]]


def by_step(dynamics: Artifact) -> pd.DataFrame:
    """Per step the means over queries of entropies, KL and tau-b, and the number of lists; the step is the index."""
    steps = pd.read_parquet(dynamics.path(DYNAMICS)).groupby("step")
    return steps[list(NAMES)].mean().assign(lists=steps.size())


def dynamics_plot(dynamics: Artifact, columns: tuple[str, ...], title: str) -> Any:
    """Means of `columns` (names of `NAMES`) over steps with the middle half of the queries as a band."""
    rows = pd.read_parquet(dynamics.path(DYNAMICS)).melt("step", list(columns), "column", "value").dropna()
    grouped = rows.groupby(["step", "column"])["value"]
    bands = grouped.agg(mean="mean", low=lambda v: v.quantile(0.25), high=lambda v: v.quantile(0.75)).reset_index()
    bands["column"] = bands["column"].map(NAMES)
    x = altair.X("step:Q", title="training step")
    base = altair.Chart(bands, **SIZE).encode(x=x, color=_colour("column", symbolOpacity=1))
    band = base.mark_area(opacity=0.2).encode(y=altair.Y("low:Q", title=title), y2="high:Q")
    y = altair.Y("mean:Q", title=title, scale=altair.Scale(zero=False))
    return band + base.mark_line(point=True).encode(y=y)


def sources(hardness: Artifact) -> pd.DataFrame:
    """A row a source: negatives, median rank, and where there are judges the median probability of a negative, the
    share of negatives they find relevant and that of labelled positives."""
    rows = {
        name: {
            "queries": source["queries"],
            "negatives": source["negatives"],
            "median rank": source["rank"][1] if source["rank"] else None,
            "median judge": source["judge"][1] if source.get("judge") else None,
            "judged false (%)": source.get("false_negatives"),
            "positives found (%)": source.get("found_positives"),
        }
        for name, source in summary(hardness)["sources"].items()
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def dropped(hardness: Artifact) -> pd.DataFrame:
    """How many passages each rule took out when the lists of a model were drawn, all queries; a row a model."""
    return pd.DataFrame.from_dict(summary(hardness)["dropped"], orient="index").fillna(0).astype(int)


def hardness_plot(hardness: Artifact, column: str) -> Any:
    """Per source a histogram of its negatives, in shares of them; by the `judge` or the `rank` in the run."""
    rows = pd.read_parquet(hardness.path(NEGATIVES), columns=["source", "label", "rank", "judge"])
    rows = rows[rows["label"] == 0].dropna(subset=[column])
    rows = rows[rows["rank"] > 0] if column == "rank" else rows  # random passages have no rank
    bins = pd.cut(rows[column], bins=edges(rows[column], whole=column == "rank"), include_lowest=True)
    sizes = rows.assign(middle=bins.map(lambda bin: bin.mid).astype(float)).groupby(["source", "middle"]).size()
    share = (100 * sizes / sizes.groupby("source").transform("sum")).rename("share").reset_index()
    title = "probability of relevance, by the judges" if column == "judge" else "rank in the run"
    lines = altair.Chart(share, **SIZE).mark_line(point=True)
    return lines.encode(
        x=altair.X("middle:Q", title=title),
        y=altair.Y("share:Q", title="share of the source's negatives (%)"),
        color=_colour("source", labelLimit=400),
    )


def edges(values: "pd.Series[Any]", whole: bool) -> list[float]:
    """The edges of at most BINS bins that hold all values; bins of whole numbers hold equally many of them."""
    if not whole:
        return [at / BINS for at in range(BINS + 1)]
    last = int(values.max()) if len(values) else 1
    width = -(-last // BINS)
    return [0.5 + width * at for at in range(-(-last // width) + 1)]
