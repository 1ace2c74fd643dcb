"""The map of the pipeline: one declaration for each kind of stage."""

from dataclasses import replace

from tandem.errors import UserError, nearest
from tandem.registry import name_plugin
from tandem.stages import data, evaluation, lexical, negatives, retrieval, training
from tandem.stages.base import BOXES, Entry, Kind, Params

KINDS: dict[str, Kind] = {
    kind.name: kind for box in (data, lexical, negatives, training, retrieval, evaluation) for kind in box.KINDS
}

__all__ = ["KINDS", "Kind", "Params", "register_stage"]


def register_stage(kind: Kind) -> Kind:
    """Add a plugin's kind of stage, which `runs` may name.

    Raises:
        UserError: its name is taken, or its box is not one of the report's drawing.
    """
    if kind.name in KINDS:
        raise UserError(f"stage {kind.name} is registered twice; rename one of them")
    if kind.box not in BOXES:
        raise UserError(f"stage {kind.name}: its box {kind.box} is unknown{nearest(kind.box, BOXES)}")
    KINDS[kind.name] = kind = replace(kind, in_runs=True)
    name_plugin(kind.name)
    return kind


def shard_commands() -> dict[str, tuple[Kind, Entry]]:
    """Commands for parts of a stage's work, which jobs may share, with the kind and the function of each."""
    shards = {kind.shard_command: (kind, kind.shard) for kind in KINDS.values() if kind.shard}
    return shards | {kind.train_command: (kind, kind.train) for kind in KINDS.values() if kind.train}


def kind_of_command(command: str) -> Kind | None:
    """The kind of stage that a command makes, or a shard of; None for a command that only reads artifacts."""
    shard = shard_commands().get(command)
    return shard[0] if shard else KINDS.get(command)


def is_stage(command: str) -> bool:
    """Whether a command makes an artifact or a shard of an artifact; the others only read artifacts."""
    return kind_of_command(command) is not None
