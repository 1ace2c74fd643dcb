"""What a system costs, by the manifests above its scores: what is searched, the time of a query, all training."""

from collections.abc import Iterator

from tandem.report.results import Costs
from tandem.stages import KINDS
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage, walk

INDEXES = ("lucene", "bm25s", "index", "impacts")  # beside the passages' embeddings
TRAININGS = ("model", "checkpoint", "pretrain")
SEARCH = ("Sparse search", "Encoding", "Retrieval", "Re-ranking", "Fusion")  # boxes of the stages that answer a query
COST_HEAD = ["index bytes", "ms a query", "training s"]
COST_NOTE = (
    "Index: bytes of what is searched. ms a query: wall time of encoding, searching and re-ranking all queries "
    "together, loading included, by the number of those scored; pairs that another system had scored before cost "
    "nothing. Training: "
    "seconds of every training that the system descends from, its teachers, judges and earlier models included. "
    "A dash: not run, or something behind the number was deleted since."
)


def costs_of(scores: Artifact) -> Costs | None:
    """The costs of the run behind scores.

    None for a group of datasets, which has no run, and where something above the scores was deleted since.
    """
    stages = walk([scores])
    run = stages[scores.key].upstream.get("run")
    if run is None or any(len(stage.upstream) < len(stage.artifact.upstream) for stage in stages.values()):
        return None
    answering = [stages[key] for key in dict.fromkeys(_answering(stages, run))]
    seconds = sum(stage.seconds for stage in answering if not _is_index(stage))
    return Costs(
        index_bytes=sum(stage.artifact.manifest.bytes for stage in answering if _is_index(stage)),
        ms_per_query=round(1000 * seconds / scores.manifest.facts["queries"], 1),
        training_seconds=round(sum(stage.seconds for stage in stages.values() if stage.kind in TRAININGS), 1),
    )


def _answering(stages: dict[str, Stage], key: str) -> Iterator[str]:
    """The indexes and the stages between them and a run; what an index is made of is left out, and tuning."""
    stage = stages[key]
    if stage.kind in KINDS and KINDS[stage.kind].box in SEARCH:
        yield key
        if not _is_index(stage):
            for role, above in stage.upstream.items():
                if role not in ("tuned", "chosen"):
                    yield from _answering(stages, above)


def _is_index(stage: Stage) -> bool:
    of_passages = stage.artifact.params.get("side") == "passages"
    return of_passages or stage.kind in INDEXES


def cost_cells(costs: Costs | None) -> list[str]:
    """Costs in the columns `COST_HEAD`; dashes without any."""
    if costs is None:
        return ["–"] * len(COST_HEAD)
    return [f"{costs.index_bytes:,}", f"{costs.ms_per_query:,.1f}", f"{costs.training_seconds:,.0f}"]
