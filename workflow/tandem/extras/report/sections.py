"""Parts of the report: training curves, training lists, the dataset; and what packages add to the page."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import BaseModel

from tandem.config.losses import OWN_LOSSES
from tandem.data.collection import CORPUS, QUERIES, join_contents
from tandem.data.tables import read_value
from tandem.extras.report.charts import Series, draw_histogram, draw_lines
from tandem.extras.report.page import cut_text
from tandem.registry import Registry
from tandem.report.grids import PageTable
from tandem.stages.base import flatten
from tandem.store.artifact import Artifact
from tandem.store.lineage import BuiltStage, input_of

_LOSS_NAMES = {
    "loss": "total", "kl": "distillation (KL)", "distil": "distillation", "in_batch": "distillation in batch",
    "sup": "supervision", "passage": "passage-centric", "regularise": "regulariser", "mlm": "masked words",
    "decoder": "decoder's words",
}  # fmt: skip
# names of a model's parts in its log
_PART_NAMES = {"(dual)": "dual encoder", "(cross)": "cross-encoder"}
# losses in the scores' own unit; all other losses are in nats
_LOSSES_OF_SCORES = {
    "hinge",
    "mse",
    "margin_mse",
}
# rows of the lists that are read, and number of queries of them that are shown
_FIRST = 5000
EXAMPLES = 3
_FOLLOWED_ROLES = ("after", "checkpoint")  # roles of checkpoints that a training continued from


@dataclass(frozen=True)
class PageSection:
    """A section that a package adds: its id, its title in the navigation, its content, and its position."""

    id: str
    title: str
    body: Markup
    place: Literal["results", "checks"]


@dataclass(frozen=True)
class TrainingCharts:
    """Charts and a note that a package adds to a training, found by one of its checkpoints."""

    checkpoint: str
    charts: list[Markup]
    note: Markup = field(default_factory=Markup)


@dataclass(frozen=True)
class Addition:
    """What a package adds to a page.

    It may list the stages of artifacts, build a section from all stages, and add charts of trainings.
    """

    artifacts: list[Artifact] = field(default_factory=list)
    section: Callable[[dict[str, BuiltStage]], PageSection | None] | None = None
    training: list[TrainingCharts] = field(default_factory=list)


# By the name of a view: `(value) -> Addition`, from the value of the view's `report_part`.
adds_to_report: Registry[Callable[[Any], Addition]] = Registry(
    "part of the report", "adds_to_report", "extras.report", False
)


@dataclass(frozen=True)
class ModelSection:
    """A training: its stage, its seconds (checkpoints included), charts, steps, and mean tokens per second."""

    stage: BuiltStage
    seconds: float
    charts: list[Markup]
    steps: int
    speed: float | None
    additions: list[TrainingCharts]


def list_trained_models(
    stages: Iterable[BuiltStage], additions: Sequence[TrainingCharts] = ()
) -> list[ModelSection]:
    """Return the trained models; a checkpoint belongs to the training that continues from it."""
    logged = {
        stage.key: stage for stage in stages if "log.parquet" in stage.artifact.manifest.files
    }
    above = {key: _list_checkpoints(stage, logged) for key, stage in logged.items()}
    inner = set().union(*above.values())
    models = []
    for key, stage in logged.items():
        if key in inner:
            continue
        log = read_log(stage.artifact)
        speed = log.get("tokens_per_second")
        models.append(
            ModelSection(
                stage,
                stage.seconds + sum(logged[other].seconds for other in above[key]),
                _draw_curves(stage.artifact, log),
                int(max((series.x[-1] for series in log.values()), default=0)),
                sum(speed.y) / len(speed.y) if speed else None,
                [addition for addition in additions if addition.checkpoint in above[key]],
            )
        )
    return models


def _list_checkpoints(stage: BuiltStage, stages: dict[str, BuiltStage]) -> set[str]:
    """Return the keys of all checkpoints from which a training was resumed."""
    keys = set[str]()
    waiting = [stage]
    while waiting:
        inputs = waiting.pop().upstream.items()
        new = {
            key for role, key in inputs if role.split(".")[0] in _FOLLOWED_ROLES and key in stages
        } - keys
        keys |= new
        waiting += [stages[key] for key in new]
    return keys


def _draw_curves(model: Artifact, log: dict[str, Series]) -> list[Markup]:
    """Draw loss parts, smoothed, and dev measures by step, with labels for readers."""
    losses = [replace(log[name], name=words) for name, words in _LOSS_NAMES.items() if name in log]
    dev = []
    for name, line in sorted(log.items()):
        if name.startswith("dev "):
            _, measure, part = name.split(" ", 2)
            dev.append(replace(line, name=f"{measure}, {_PART_NAMES.get(part, part)}"))
    unit = (
        "loss, in scores"
        if {*_LOSSES_OF_SCORES, *OWN_LOSSES} & set(map(str, flatten(model.params).values()))
        else "loss, nats"
    )
    charts = [draw_lines("Loss and its parts", losses, "step", unit, smooth=True)] if losses else []
    charts += [draw_lines("On the dev queries", dev, "step", "mean over queries")] if dev else []
    return charts


def read_log(model: Artifact) -> dict[str, Series]:
    """Return a training log by name, in ascending steps.

    If a resumed run logged a step twice, the last value counts.
    """
    points: dict[str, dict[int, float]] = {}
    table = pq.read_table(model.path("log.parquet"), columns=["step", "name", "value"])
    for step, name, value in zip(*(column.to_pylist() for column in table.columns), strict=True):
        points.setdefault(name, {})[step] = value
    return {
        name: Series(name, *zip(*sorted(steps.items()), strict=True))
        for name, steps in points.items()
    }


class Bins(BaseModel):
    """The number of passages of a pool whose scores are between two edges."""

    edges: list[float] = []
    positives: list[int] | None = None
    negatives: list[int] | None = None


class DenoisingReport(BaseModel):
    """What denoising removed, compared with the passages that are near-copies of a positive."""

    passages: int
    removed: int
    near_copies: int
    removed_near_copies: int
    precision: float | None
    recall: float | None


class ListReport(BaseModel):
    """The fields of training lists' report.json that the page shows."""

    queries: int
    lists: dict[str, int]
    dropped: dict[str, int]
    percentiles: dict[str, dict[str, float | None] | None] | None = None
    histogram: Bins | None = None
    denoising: DenoisingReport | None = None
    too_few: int = 0


@dataclass(frozen=True)
class ListSection:
    """Training lists: whether a judge denoised them, a histogram of scores if there are any, and example passages."""

    stage: BuiltStage
    report: ListReport
    judged: bool
    chart: Markup | None
    examples: PageTable | None

    @property
    def grids(self) -> list[PageTable]:
        """Return tables of how many passages each rule dropped, and of percentiles of the scores."""
        dropped = [[rule, f"{count:,}"] for rule, count in self.report.dropped.items()]
        groups = self.report.percentiles or {}
        levels = dict.fromkeys(level for group in groups.values() for level in group or ())
        values = [
            [level, *(_format_number((group or {}).get(level)) for group in groups.values())]
            for level in levels
        ]
        head = ["Judge's score" if self.judged else "Score in the run", *groups]
        grids = [
            PageTable(
                f"What was dropped from {self.stage.key}", ["Dropped by rule", "passages"], dropped
            )
        ]
        if counts := self.report.denoising:
            title = f"What the judge of {self.stage.key} took out, and near-copies of a positive"
            grids.append(
                PageTable(
                    title, ["Passages of the windows", "Value"], list(describe_denoising(counts))
                )
            )
        return grids + [
            PageTable(f"Percentiles of the scores of {self.stage.key}", head, values)
        ] * bool(values)


def describe_denoising(counts: DenoisingReport) -> Iterator[list[str]]:
    """Yield the counts of denoising with their names, and its precision and recall in percent."""
    yield ["judged", f"{counts.passages:,}"]
    yield ["taken out: not surely negative", f"{counts.removed:,}"]
    yield ["near-copies of a positive (half of the token trigrams)", f"{counts.near_copies:,}"]
    yield ["near-copies taken out", f"{counts.removed_near_copies:,}"]
    for name, share in (("precision", counts.precision), ("recall", counts.recall)):
        yield [f"{name} against near-copies", "–" if share is None else f"{share:.1%}"]


def _format_number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4g}"


def describe_training_list(stage: BuiltStage) -> ListSection:
    """Return the section of a stage `candidates`, with the scores of positives and negatives."""
    candidates = stage.artifact
    report = ListReport.model_validate_json(candidates.path("report.json").read_bytes())
    judged = any(role.startswith("judge") for role in candidates.upstream)
    chart: Markup | None = None
    if (bins := report.histogram) and bins.edges:
        pool = "negatives before denoising" if judged else "negatives of the pool"
        groups = {"positives": bins.positives or [], pool: bins.negatives or []}
        selected = count_by_bin(candidates, bins.edges, "judge" if judged else "score")
        if selected == list(groups[pool]):  # nothing was dropped: one line would hide the other
            groups["negatives, all of the pool in the lists"] = groups.pop(pool)
        else:
            groups["negatives after denoising" if judged else "negatives of the lists"] = selected
        unit = "the judge's probability" if judged else "score in the run"
        title = (
            "Scores before and after denoising" if judged else "Scores of the pool and of the lists"
        )
        chart = draw_histogram(
            title,
            bins.edges,
            {name: counts for name, counts in groups.items() if any(counts)},
            unit,
        )
    return ListSection(stage, report, judged, chart, list_examples(candidates))


def list_examples(candidates: Artifact) -> PageTable | None:
    """Return the first positives and negatives of a few queries, with their texts; None if no list was kept."""
    if "candidates.parquet" not in candidates.manifest.files:
        return None
    with pq.ParquetFile(candidates.path("candidates.parquet")) as file:
        first = next(
            file.iter_batches(_FIRST, columns=["query_row", "label", "passage_row", "score"]),
            pa.table({}),
        )
    # The positives of a query are consecutive and come before the negatives.
    groups = groupby(zip(*first.to_pydict().values(), strict=True), itemgetter(0, 1))
    dataset = input_of(candidates, "dataset")
    shown = [
        [
            read_value(dataset.path(QUERIES), "text", query),
            "positive" if label else "negative",
            _format_number(score),
            cut_text(
                join_contents(
                    *(read_value(dataset.path(CORPUS), column, row) for column in ("title", "text"))
                ),
                200,
            ),
        ]
        for _, group in islice(groups, 2 * EXAMPLES)
        for query, label, row, score in islice(group, 2)
    ]
    return PageTable(
        f"Examples of {candidates.key}", ["Query", "Label", "Score in the run", "Passage"], shown
    )


def count_by_bin(candidates: Artifact, edges: Sequence[float], column: str) -> list[int]:
    """Return the number of the lists' negatives between each two edges, by the values of a column.

    For the judge's scores, only denoised lists count.
    """
    if "candidates.parquet" not in candidates.manifest.files:
        return []
    counts = np.zeros(len(edges) - 1, np.int64)
    with pq.ParquetFile(candidates.path("candidates.parquet")) as file:
        for batch in file.iter_batches(columns=["label", "list", column]):
            scores = batch.column(column).to_numpy(zero_copy_only=False)
            counted = np.isfinite(scores) & (batch.column("label").to_numpy() == 0)
            if column == "judge":
                counted &= batch.column("list").to_numpy(zero_copy_only=False) != "undenoised"
            # edges are rounded: the highest and the lowest score may lie beyond
            counts += np.histogram(np.clip(scores[counted], edges[0], edges[-1]), edges)[0]
    return counts.tolist()


def describe_dataset(statistics: dict[str, object]) -> list[PageTable]:
    """Return the content of statistics.json as tables: the corpus as a list, the splits side by side."""
    corpus = flatten({name: value for name, value in statistics.items() if name != "splits"})
    by_split = statistics.get("splits", {})
    splits = (
        {name: flatten(values) for name, values in by_split.items()}
        if isinstance(by_split, dict)
        else {}
    )
    names = dict.fromkeys(name for values in splits.values() for name in values)
    rows = [
        [_make_title(name), *(_format_text(values.get(name)) for values in splits.values())]
        for name in names
    ]
    return [
        PageTable(
            "The corpus",
            ["Statistic", "Value"],
            [[_make_title(name), _format_text(value)] for name, value in corpus.items()],
        ),
        PageTable("The splits", ["Statistic", *splits], rows),
    ]


def _make_title(path: str) -> str:
    return path.replace(".", ", ").replace("_", " ")


def _format_text(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format_figure(value)
    return (
        "; ".join(map(str, value))
        if isinstance(value, list)
        else str("" if value is None else value)
    ) or "–"


def format_figure(value: float | None) -> str:
    """Return `8,841,823`, `2.57`; empty without a value."""
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
