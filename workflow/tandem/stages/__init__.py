"""The map of the pipeline: one declaration for each kind of stage."""

from dataclasses import replace

from tandem.errors import UserError
from tandem.registry import name_plugin
from tandem.stages import data, evaluation, lexical, negatives, retrieval, training
from tandem.stages.base import Kind, Params

KINDS: dict[str, Kind] = {
    kind.name: kind for box in (data, lexical, negatives, training, retrieval, evaluation) for kind in box.KINDS
}


def register_stage(kind: Kind) -> Kind:
    """Add a plugin's kind of stage, which `runs` may name; a `UserError` if its name is taken."""
    if kind.name in KINDS:
        raise UserError(f"stage {kind.name} is registered twice; rename one of them")
    KINDS[kind.name] = kind = replace(kind, in_runs=True)
    name_plugin(kind.name)
    return kind


# Commands for parts of a stage's work, which jobs may share: `module:function` of each.
SHARDS = {kind.shard_command: kind.shard for kind in KINDS.values() if kind.shard}
SHARDS |= {f"{kind.name}-train": kind.train for kind in KINDS.values() if kind.train}

__all__ = ["KINDS", "SHARDS", "Kind", "Params", "register_stage"]


def is_stage(command: str) -> bool:
    """Whether a command makes an artifact or a shard of an artifact; the others only read artifacts."""
    return command in KINDS or command in SHARDS
