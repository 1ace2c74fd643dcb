"""The map of the pipeline: one declaration for each kind of stage."""

from tandem.stages import audits, data, evaluation, lexical, negatives, retrieval, training
from tandem.stages.base import Kind, Params

KINDS: dict[str, Kind] = {
    kind.name: kind for box in (data, lexical, negatives, training, retrieval, evaluation, audits) for kind in box.KINDS
}

__all__ = ["KINDS", "Kind", "Params"]


def is_stage(command: str) -> bool:
    """Whether a command makes an artifact or a shard of one; the others only read them."""
    return command in KINDS or command == "index-train" or command.endswith("-shard")
