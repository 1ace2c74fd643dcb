"""The map of the pipeline: one declaration for each kind of stage."""

from tandem.stages import data, evaluation, lexical, negatives, retrieval, training
from tandem.stages.base import Kind, Params

KINDS: dict[str, Kind] = {
    kind.name: kind for box in (data, lexical, negatives, training, retrieval, evaluation) for kind in box.KINDS
}

# Commands for parts of a stage's work, which jobs may share: `module:function` of each.
SHARDS = {kind.shard_command: kind.shard for kind in KINDS.values() if kind.shard}
SHARDS |= {f"{kind.name}-train": kind.train for kind in KINDS.values() if kind.train}

__all__ = ["KINDS", "SHARDS", "Kind", "Params"]


def is_stage(command: str) -> bool:
    """Whether a command makes an artifact or a shard of an artifact; the others only read artifacts."""
    return command in KINDS or command in SHARDS
