"""What a system costs, by the manifests above its scores: what is searched, the time of a query, all training."""

from collections.abc import Iterator

from tandem.report.results import Costs
from tandem.stages import KINDS
from tandem.store.artifact import Artifact
from tandem.store.lineage import open_upstream, walk

INDEXES = ("lucene", "bm25s", "index")  # beside the passages' embeddings
TRAININGS = ("model", "checkpoint", "pretrain")
SEARCH = ("Sparse search", "Encoding", "Retrieval", "Re-ranking", "Fusion")  # boxes of the stages that answer a query
COST_HEAD = ["index bytes", "ms a query", "training s"]
COST_NOTE = (
    "Index: bytes of what is searched. ms a query: wall time of encoding, searching and re-ranking all queries "
    "together, loading included, by their number; pairs that another system had scored before cost nothing. Training: "
    "seconds of every training that the system descends from, its teachers, judges and earlier models included."
)


def costs_of(scores: Artifact) -> Costs | None:
    """The costs of the run behind scores; None for a group of datasets, which has no run."""
    run = open_upstream(scores).get("run")
    if run is None:
        return None
    answering = {artifact.key: artifact for artifact in _answering(run)}.values()
    seconds = sum(artifact.manifest.seconds for artifact in answering if not _is_index(artifact))
    return Costs(
        index_bytes=sum(artifact.manifest.bytes for artifact in answering if _is_index(artifact)),
        ms_per_query=round(1000 * seconds / scores.manifest.facts["queries"], 1),
        training_seconds=round(sum(stage.seconds for stage in walk([run]).values() if stage.kind in TRAININGS), 1),
    )


def _answering(artifact: Artifact) -> Iterator[Artifact]:
    """The indexes and the stages between them and the run; what an index is made of is left out."""
    if artifact.kind in KINDS and KINDS[artifact.kind].box in SEARCH:
        yield artifact
        if not _is_index(artifact):
            for role, above in open_upstream(artifact).items():
                if not role.startswith("tuned"):
                    yield from _answering(above)


def _is_index(artifact: Artifact) -> bool:
    return artifact.kind in INDEXES or (artifact.kind == "embeddings" and artifact.params["side"] == "passages")


def cost_cells(costs: Costs | None) -> list[str]:
    """Costs in the columns `COST_HEAD`; dashes for what was not run."""
    if costs is None:
        return ["–"] * len(COST_HEAD)
    return [f"{costs.index_bytes:,}", f"{costs.ms_per_query:,.1f}", f"{costs.training_seconds:,.0f}"]
