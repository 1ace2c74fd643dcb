"""From stages to what they cost on a machine: operations, device hours, memory, disk, wall time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tandem.config.loading import Raw
from tandem.errors import UserError
from tandem.estimating import indexes, training, work
from tandem.estimating.encoders import shape_of
from tandem.estimating.hardware import Hardware
from tandem.estimating.volumes import TOKENS_PER_WORD, Volumes, finished, volumes
from tandem.estimating.work import Setting, Work
from tandem.plan.graph import Stage
from tandem.stages import KINDS

WORKS: dict[str, Callable[[Stage, Setting], Work]] = {
    "dataset": work.dataset,
    "encoder": work.encoder,
    "vocabulary": work.vocabulary,
    "pretrain": training.pretrain,
    "tokens": work.tokens,
    "lucene": work.lucene,
    "bm25s": work.bm25s,
    "bm25": work.bm25,
    "tune_bm25": work.tune_bm25,
    "candidates": work.candidates,
    "teacher": work.teacher,
    "model": training.model,
    "checkpoint": training.checkpoint,
    "embeddings": work.embeddings,
    "retrieve": work.retrieve,
    "index": indexes.index,
    "ann": indexes.ann,
    "tradeoffs": indexes.tradeoffs,
    "rerank": work.rerank,
    "rerank_windows": work.rerank_windows,
    "aggregate": work.aggregate,
    "fuse": work.fuse,
    "tune_fusion": work.tune_fusion,
    "score": work.score,
    "average_rank": work.average_rank,
}


@dataclass(frozen=True)
class Cost:
    """What one stage costs.

    Attributes:
        stage: the stage.
        operations: floating-point operations of models.
        seconds: of device time, the devices' together.
        wall: seconds by the clock.
        memory: bytes at the peak of one process.
        disk: bytes.
        measured: seconds it took where it is made, else None.
    """

    stage: Stage
    operations: float
    seconds: float
    wall: float
    memory: float
    disk: float
    measured: float | None


def setting(config: Raw, hardware: Hardware) -> Setting:
    """What the configuration and the machine tell beside the stages.

    The functions of the result raise a UserError where a dataset's or an encoder's size is not known.
    """

    @cache
    def sizes(stage: Stage) -> Volumes:
        """The collection of a dataset stage; a derived one is as large as what it is made of."""
        found = volumes(stage, config["datasets"].get(stage.name, {}))
        for role in ("of", "corpus") if found is None else ():
            if role in stage.upstream:
                return derived(stage, sizes(stage.upstream[role]))
        if found is None:
            raise UserError(f"dataset {stage.name}: its size is not known; `snakemake {stage.manifest}` counts it")
        return found

    kept = (hardware.activation_bytes, hardware.held)
    return Setting(sizes, lambda stage: shape_of(stage, config["encoders"]), config["execution"], *kept)


def derived(stage: Stage, whole: Volumes) -> Volumes:
    """The size of a derived dataset."""
    made = {"reduced": reduced, "windows": cut}.get(stage.values["source"])
    return made(stage, whole) if made else whole


def reduced(stage: Stage, whole: Volumes) -> Volumes:
    """Of one reduced for validation at most what a query brings, times its queries."""
    asked = min(whole.queries.get("dev", 0), stage.values.get("dev_queries") or whole.queries.get("dev", 0))
    brought = asked * (stage.values["depth"] + stage.values["others"] + 1)
    return replace(whole, passages=min(whole.passages, brought), queries={"dev": asked})


def cut(stage: Stage, whole: Volumes) -> Volumes:
    """Of windows as many as documents of the mean length have."""
    params, tokens = stage.values, whole.lengths["passage"]
    units = tokens / (TOKENS_PER_WORD if params["unit"] == "words" else 1.0)
    windows = 1 + max(0.0, units - params["length"]) / params["stride"]
    kept = min(windows, params["most"] or windows)
    lengths = whole.lengths | {"passage": tokens * min(1.0, params["length"] / units)}
    return replace(whole, passages=round(whole.passages * kept), lengths=lengths, counted=False)


def cost(stage: Stage, about: Setting, hardware: Hardware) -> Cost | None:
    """What a stage costs; None for kinds that take a moment."""
    if stage.kind not in WORKS:
        return None
    told = WORKS[stage.kind](stage, about)
    computing = hardware.seconds(told.kind, told.operations) if told.kind else 0.0
    passing, before = (sum(rows / hardware.rates[name] for name, rows in part) for part in (told.rows, told.alone))
    start = hardware.start if told.kind else hardware.start / 4
    made = finished(stage.folder)
    return Cost(
        stage,
        told.operations,
        computing,
        start + before + (passing + computing) / spread(stage, about.execution),
        told.memory,
        told.disk,
        float(made["seconds"]) if made else None,
    )


def spread(stage: Stage, execution: dict[str, Any]) -> int:
    """How many processes share a stage's work: devices those of a training, shards those that the plan cuts in jobs."""
    kind = KINDS[stage.kind]
    if kind.ranks:
        return int(execution.get("devices", 1) * execution.get("nodes", 1))
    shared = kind.is_shared(stage.upstream)
    return int(execution.get("shards", 1)) if shared and stage.values.get("side") != "queries" else 1


def upstream_first(wanted: Iterable[Stage]) -> list[Stage]:
    """The wanted stages and all they need, each once, what is needed before what needs it."""
    made: dict[tuple[str, str], Stage] = {}

    def visit(stage: Stage) -> None:
        """Enter what a stage needs, then the stage."""
        if (stage.kind, stage.key) not in made:
            for one in stage.upstream.values():
                visit(one)
            made[stage.kind, stage.key] = stage

    for stage in wanted:
        visit(stage)
    return list(made.values())


def totals(costs: Iterable[Cost]) -> dict[str, Any]:
    """Sums over stages; the largest memory."""
    known = list(costs)
    made: dict[str, Any] = {
        name: sum(getattr(one, name) for one in known) for name in ("operations", "seconds", "wall", "disk")
    }
    return made | {"memory": max((one.memory for one in known), default=0.0)}
