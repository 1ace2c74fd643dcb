"""Compute a system's costs from the manifests upstream of its scores: index size, time per query, training time."""

from collections.abc import Iterator

from tandem.report.results import Costs
from tandem.report.scored import TRAINING_STAGES
from tandem.store.artifact import Artifact
from tandem.store.lineage import BuiltStage, walk

# boxes of the stages that take part in answering a query
_ANSWERING_BOXES = ("Sparse search", "Encoding", "Retrieval", "Re-ranking", "Fusion")


def read_costs(scores: Artifact) -> Costs | None:
    """Return the costs of the run behind scores; None for a group, without a run, or if a stage was deleted."""
    stages = walk([scores])
    run = stages[scores.key].upstream.get("run")
    if run is None or any(
        len(stage.upstream) < len(stage.artifact.upstream) for stage in stages.values()
    ):
        return None
    answering = [stages[key] for key in dict.fromkeys(_iterate_answering(stages, run))]
    seconds = sum(stage.seconds for stage in answering if not _is_index(stage))
    # Only of the run: its scores may also descend from judges, whose labels or queries they take.
    above = walk([stages[run].artifact]).values()
    trainings = [stage for stage in above if stage.declared.holds in TRAINING_STAGES]
    return Costs(
        index_bytes=sum(stage.artifact.manifest.bytes for stage in answering if _is_index(stage)),
        ms_per_query=round(1000 * seconds / scores.manifest.facts["queries"], 1),
        training_seconds=round(sum(stage.seconds for stage in trainings), 1),
    )


def _iterate_answering(stages: dict[str, BuiltStage], key: str) -> Iterator[str]:
    """Yield the keys of the indexes and of the stages between them and a run.

    Left out are the inputs of an index, tuning, and vectors that are not read because only an index's codes decide.
    """
    stage = stages[key]
    by_codes = "index" in stage.upstream and stage.artifact.params.get("rescore") is False
    unread = {"tuned", "chosen", *(["passages"] if by_codes else [])}
    if stage.declared.box in _ANSWERING_BOXES:
        yield key
        for role, above in () if _is_index(stage) else stage.upstream.items():
            if role not in unread:
                yield from _iterate_answering(stages, above)


def _is_index(stage: BuiltStage) -> bool:
    return stage.artifact.params.get("side") == "passages" or stage.declared.holds in (
        "index",
        "lexical index",
    )
