"""Plan the entries that a section's keys name, by the types of these keys: role → stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tandem.config.base import Model
from tandem.config.references import Name, names_in
from tandem.errors import UserError
from tandem.plan.context import Context, plans_reference
from tandem.plan.graph import Stage


@dataclass(frozen=True)
class Scope:
    """Describe what a name is looked up for.

    Attributes:
        dataset: where a named run searches, and whose texts a named model reads.
        split: whose queries a named run searches for.
        seed: the seed of whatever the planned stages draw.
        inputs: role → stage of the inputs that are planned already.
    """

    dataset: str
    split: str
    seed: int = 0
    inputs: Mapping[str, Stage] = field(default_factory=dict)


def plan_references(ctx: Context, section: Model, path: str, scope: Scope) -> dict[str, Stage]:
    """Plan the entries that a section, and the sections in it, name; return role → stage.

    How a sort of reference is planned is registered by `@plans_reference`.

    Args:
        path: of the section, dotted.
    Raises:
        UserError: a name that does not exist, or is of another sort than its key needs; begins with the key.
    """
    inputs: dict[str, Stage] = {}
    for name in names_in(section, path):
        inputs |= plan_reference(ctx, name, scope, name.reference.to)
    return inputs


def plan_reference(ctx: Context, name: Name, scope: Scope, sort: str) -> dict[str, Stage]:
    """Plan the entry that a key names; `sort` is the key's own sort, unless another key of the section changes it."""
    if sort not in plans_reference:
        raise UserError(
            f"{name.path}: nothing makes {sort}; leave the key out, or load a plugin that makes them"
        )
    return plans_reference[sort](ctx, name, scope)


def number_roles(name: Name, stages: Sequence[Stage]) -> dict[str, Stage]:
    """Return the roles of the entries that a key names: the key's own for one, `<role>.0`, `<role>.1`, … for a list."""
    if name.is_list:
        return {f"{name.role}.{number}": stage for number, stage in enumerate(stages)}
    return {name.role: stages[0]}
