"""The map of the pipeline: one declaration for each kind of stage."""

from dataclasses import fields, replace
from typing import Literal, get_args, get_origin

from tandem.errors import NAME, UserError, nearest, printable
from tandem.plugins import Declarations, end_core, name_plugin
from tandem.stages import data, evaluation, negatives, retrieval, training
from tandem.stages.base import Entry, Holds, Kind, Params

KINDS: Declarations[Kind] = Declarations(
    (kind.name, kind)
    for box in (data, negatives, training, retrieval, evaluation)
    for kind in box.KINDS
)
end_core()

__all__ = ["KINDS", "Kind", "Params", "register_stage"]


def register_stage(kind: Kind, *, in_runs: bool = True) -> Kind:
    """Add a plugin's kind of stage.

    Args:
        in_runs: whether an entry of `runs` may name it: it writes a run.
    Raises:
        UserError: its name is taken or cannot be part of a command and a path; the model of its parameters is not a
            subclass of `Params`; or a word of its declaration, such as its box, is not allowed.
    """
    if kind.name in KINDS or kind.name in rule_names():
        raise UserError(f"stage {kind.name} is registered twice; rename one of them")
    if not NAME.fullmatch(kind.name):
        raise UserError(
            f"stage {printable(kind.name)}: allowed in its name are letters, digits, _, . and -"
        )
    # without `Params`, the plugin's digest would be in no key
    if kind.params and not issubclass(kind.params, Params):
        raise UserError(
            f"stage {kind.name}: its params are {kind.params.__name__}, which is not a subclass of Params"
        )
    for field in fields(kind):
        value = getattr(kind, field.name)
        if get_origin(field.type) is Literal and value not in (allowed := get_args(field.type)):
            raise UserError(
                f"stage {kind.name}: its {field.name} is {value}{nearest(value, allowed)}"
            )
    KINDS[kind.name] = kind = replace(kind, in_runs=in_runs)
    name_plugin(kind.name)
    return kind


def declaration(name: str) -> Kind:
    """Return the declaration of a kind; for an unknown kind, whose plugin is not loaded, one with defaults."""
    return KINDS.get(name) or Kind(name, "")


def parameter_names(kind: str) -> set[str]:
    """Return the names of a kind's parameters."""
    params = KINDS[kind].params
    return set(params.model_fields) if params else set()


def rule_names() -> dict[str, Kind]:
    """Return the kinds by the names of their rules."""
    return {kind.rule_name: kind for kind in KINDS.values()}


def holding(*contents: Holds) -> set[str]:
    """Return the names of the kinds whose artifacts hold any of these."""
    return {kind.name for kind in KINDS.values() if kind.holds in contents}


def shard_commands() -> dict[str, tuple[Kind, Entry]]:
    """Return the commands for parts of a stage's work, which jobs may share, with the kind and the function of each."""
    shards = {kind.shard_command: (kind, kind.shard) for kind in KINDS.values() if kind.shard}
    return shards | {
        kind.train_command: (kind, kind.train) for kind in KINDS.values() if kind.train
    }


def kind_of_command(command: str) -> Kind | None:
    """Return the kind of stage that a command makes, whole or in a shard; None if it only reads artifacts."""
    shard = shard_commands().get(command)
    return shard[0] if shard else KINDS.get(command)


def is_stage(command: str) -> bool:
    """Return whether a command makes an artifact or a shard of an artifact; the others only read artifacts."""
    return kind_of_command(command) is not None
