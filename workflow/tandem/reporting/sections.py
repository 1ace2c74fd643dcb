"""Parts of the report that come from one kind of artifact: training curves, negatives, cost."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from markupsafe import Markup

from tandem.cluster.progress import duration
from tandem.reporting.charts import Series, bars, histogram, line_chart
from tandem.reporting.overview import Part, written
from tandem.reporting.validations import Curve
from tandem.stages.flags import flatten
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage

DEV = ("dev/", "dev ")  # how a log names what was measured on dev
LOSSES = ("loss", "kl", "sup")
OF_SCORES = {"hinge", "mse", "margin_mse"}  # losses in the scores' own unit; all others are in nats
PASSED = ("after", "checkpoint")  # roles of checkpoints that a training went on from


def training(stages: Iterable[Stage], validations: Sequence[Curve] = ()) -> list[dict[str, Any]]:
    """Per model that was trained: its key, its charts, its last values, and how its checkpoints were validated.

    A checkpoint that another one or a model goes on from is shown there.
    """
    logged = {stage.key: stage for stage in stages if "log.parquet" in stage.artifact.manifest.files}
    above = {key: _passed(stage, logged) for key, stage in logged.items()}
    shown = logged.keys() - set().union(*above.values())
    return [
        {
            "stage": stage,
            "seconds": stage.seconds + sum(logged[other].seconds for other in above[key]),
            "validated": [curve for curve in validations if curve.checkpoints[0].key in above[key]],
            **_curves(stage.artifact),
        }
        for key, stage in logged.items()
        if key in shown
    ]


def _passed(stage: Stage, stages: dict[str, Stage]) -> set[str]:
    """Keys of the checkpoints that a training went on from, of all of them."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        inputs = waiting.pop().upstream.items()
        new = {key for role, key in inputs if role.split(".")[0] in PASSED and key in stages} - found
        found |= new
        waiting += [stages[key] for key in new]
    return found


def _curves(model: Artifact) -> dict[str, Any]:
    """Loss parts, dev measures and learning rate against the step, and the mean throughput."""
    log = read_log(model)
    losses = [log[name] for name in LOSSES if name in log]
    dev = [Series(name[len(DEV[0]) :], one.x, one.y) for name, one in sorted(log.items()) if name.startswith(DEV)]
    unit = "loss, in scores" if OF_SCORES & set(map(str, flatten(model.params).values())) else "loss, nats"
    charts = [line_chart("Loss and its parts", losses, "step", unit)] if losses else []
    charts += [line_chart("On the dev queries", dev, "step", "mean over queries")] if dev else []
    charts += [line_chart("Learning rate", [log["lr"]], "step", "learning rate")] if "lr" in log else []
    speed = log.get("tokens_per_second")
    return {
        "charts": charts,
        "steps": int(max((one.x[-1] for one in log.values()), default=0)),
        "speed": sum(speed.y) / len(speed.y) if speed else None,
    }


def read_log(model: Artifact) -> dict[str, Series]:
    """A training log by name, in ascending step; of a step logged twice (a resumed run) the last value counts."""
    table = pq.read_table(model.path("log.parquet"))
    points: dict[str, dict[int, float]] = {}
    columns = (table[name].to_pylist() for name in ("step", "name", "value"))
    for step, name, value in zip(*columns, strict=True):
        points.setdefault(name, {})[step] = value
    return {name: Series(name, *zip(*sorted(steps.items()), strict=True)) for name, steps in points.items()}


def negatives(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Per candidates artifact: its report and a histogram of the scores of positives and negatives."""
    lists = [stage for stage in stages if stage.kind == "candidates"]
    return [{"stage": stage, **_report(stage.artifact)} for stage in lists]


def _report(candidates: Artifact) -> dict[str, Any]:
    """What is known about a training list; the chart is None where nothing has a score."""
    told = json.loads(candidates.path("report.json").read_text(encoding="utf-8"))
    bins = told.get("histogram") or {}
    judged = any(role.startswith("judge") for role in candidates.upstream)
    chart: Markup | None = None
    if bins.get("edges"):
        pool = "negatives before denoising" if judged else "negatives of the pool"
        groups = {"positives": bins.get("positives") or (), pool: bins.get("negatives") or ()}
        after = "negatives after denoising" if judged else "negatives of the lists"
        left = kept(candidates, bins["edges"], "judge" if judged else "score")
        if left == list(groups[pool]):  # nothing was dropped: one line would hide the other
            groups["negatives, all of the pool in the lists"] = groups.pop(pool)
        else:
            groups[after] = left
        of = "the judge's probability" if judged else "score in the run"
        title = "Scores before and after denoising" if judged else "Scores of the pool and of the lists"
        chart = histogram(title, bins["edges"], {name: told for name, told in groups.items() if any(told)}, of)
    return {"report": told, "judged": judged, "chart": chart}


def kept(candidates: Artifact, edges: Sequence[float], column: str) -> list[int]:
    """How many negatives of the lists lie between the edges, by a column; none where the lists are not there.

    By the judge only denoised lists count: a hybrid has them beside undenoised ones.
    """
    if "candidates.parquet" not in candidates.manifest.files:
        return []
    counts = np.zeros(len(edges) - 1, np.int64)
    with pq.ParquetFile(candidates.path("candidates.parquet")) as file:
        for batch in file.iter_batches(columns=["label", "list", column]):
            scores = batch.column(column).to_numpy(zero_copy_only=False)
            told = np.isfinite(scores) & (batch.column("label").to_numpy() == 0)
            if column == "judge":
                told &= batch.column("list").to_numpy(zero_copy_only=False) != "undenoised"
            counts += np.histogram(scores[told], edges)[0]
    return counts.tolist()


def cost_chart(boxes: dict[str, Part]) -> Markup:
    """Wall time of each kind of work, the longest first."""
    ordered = sorted(boxes.values(), key=lambda part: -part.seconds)
    seconds = {part.name: round(part.seconds, 3) for part in ordered}
    return bars("Computing time", seconds, "seconds", {part.name: duration(part.seconds) for part in ordered})


def cost(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Per stage its seconds, share of the total, peak memory and bytes on disk."""
    listed = list(stages)
    total = sum(stage.seconds for stage in listed) or 1.0
    return [
        {
            "stage": stage,
            "share": 100 * stage.seconds / total,
            "memory": stage.artifact.manifest.peak_memory_mib,
            "bytes": written(stage),
        }
        for stage in listed
    ]
