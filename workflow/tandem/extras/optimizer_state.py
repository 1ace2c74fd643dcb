"""What an optimizer remembers between steps, as checkpoints store it: tensors, and numbers next to them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.stages.base import Json

_SINGLE = (int, float, str, type(None))  # True and False, too


def split_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], Json]:
    """Return an optimizer's tensors by `parameter|kind`, and its other values, by these names, and groups as JSON.

    Raises:
        UserError: it remembers something else, which a resumed training would lack; see `find_unsaved`.
    """
    if problem := find_unsaved(optimizer):
        raise UserError(f"the optimizer {type(optimizer).__name__} {problem}")
    tensors: dict[str, Tensor] = {}
    values: Json = {}
    shared: dict[str, str] = {}  # the same tensor as an earlier parameter's
    first_of: dict[int, str] = {}  # by the identity of a tensor
    for name, parameter in parameters.items():
        for kind, value in optimizer.state[parameter].items():
            path = f"{name}|{kind}"
            if not isinstance(value, Tensor):
                values[path] = value
                continue
            first = first_of.setdefault(id(value), path)
            if first == path:
                tensors[path] = value
            else:
                shared[path] = first
    groups = [
        {key: value for key, value in group.items() if isinstance(value, int | float)}
        for group in optimizer.param_groups
    ]
    return tensors, {"values": values, "shared": shared, "groups": groups}


def restore_state(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
    others: Json | None,
) -> None:
    """Put back what `split_state` returned; checkpoints of earlier versions have only tensors."""
    others = others or {"values": {}, "shared": {}, "groups": []}
    restored = {}
    for path, value in {**tensors, **others["values"]}.items():
        is_tensor = isinstance(value, Tensor)
        device = parameters[path.split("|")[0]].device
        restored[path] = value.to(device) if is_tensor else value
    for path, first in others["shared"].items():
        restored[path] = restored[first]
    for path, value in restored.items():
        name, kind = path.split("|")
        optimizer.state[parameters[name]][kind] = value
    for group, own in zip(optimizer.param_groups, others["groups"], strict=False):
        group.update(own)


def find_unsaved(optimizer: torch.optim.Optimizer) -> str:
    """Return, in words, what an optimizer remembers that checkpoints do not store; empty if there is nothing.

    Checkpoints store tensors and single values of parameters, and numbers of groups.
    """
    known = {id(weights) for group in optimizer.param_groups for weights in group["params"]}
    for owner, state in optimizer.state.items():
        if id(owner) not in known:
            return f"keeps a state of {owner!r}, which is not a parameter; checkpoints have no place for it"
        for kind, value in state.items():
            if not isinstance(value, (Tensor, *_SINGLE)):
                return _describe(f"`{kind}` of a parameter", value, "tensors and single values")
    for group in optimizer.param_groups:
        for key, value in group.items():
            # a resumed training has the arguments that it was created with, such as `betas`, too
            is_first = key == "params" or value is optimizer.defaults.get(key)
            if not is_first and not isinstance(value, _SINGLE):
                return _describe(f"`{key}` of a group", value, "single values")
    return ""


def _describe(what: str, value: object, kept: str) -> str:
    return f"keeps {what} as a {type(value).__name__}; checkpoints keep {kept} there"
