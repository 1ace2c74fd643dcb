"""The tree of stages behind a number, each spelled out once."""

from dataclasses import dataclass

from tandem.store.lineage import BuiltStage


@dataclass(frozen=True)
class Node:
    """A stage in the tree behind a number. Where it occurs again (`repeated`), the stages above it are left out."""

    stage: BuiltStage
    roles: list[str]
    above: list["Node"]
    repeated: bool


def tree(stages: dict[str, BuiltStage], key: str) -> Node:
    """Return the tree above a stage; each stage is spelled out where it occurs first."""
    visited: set[str] = set()

    def grow(key: str, roles: list[str]) -> Node:
        """Return the tree of a stage; in these roles it is the input of the stage below it."""
        repeated = key in visited
        visited.add(key)
        inputs: dict[str, list[str]] = {}
        for role, other in stages[key].upstream.items():
            inputs.setdefault(other, []).append(role)
        above = [] if repeated else [grow(other, into) for other, into in inputs.items()]
        return Node(stages[key], roles, above, repeated and bool(inputs))

    return grow(key, [])
