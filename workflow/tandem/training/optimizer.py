"""Adam or AdamW with a linear schedule; its state as plain tensors."""

from typing import Any

import torch
from torch import Tensor, nn


def make_optimizer(models: nn.Module, train: dict[str, Any]) -> torch.optim.Optimizer:
    """The optimizer over the parameters that learn; biases and layer norms are not decayed."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in models.named_parameters():
        if parameter.requires_grad:
            (plain if parameter.dim() == 1 or "LayerNorm" in name else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": train["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
    make = torch.optim.AdamW if train["optimizer"] == "adamw" else torch.optim.Adam
    optimizer = make(groups, lr=train["lr"], fused=True)
    optimizer.register_step_post_hook(_changed)
    return optimizer


def _changed(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count a change of every parameter, which the fused kernel leaves out: what is made of them looks at the count."""
    torch.autograd.graph.increment_version([p for group in optimizer.param_groups for p in group["params"]])


def rate(step: int, steps: int, train: dict[str, Any]) -> float:
    """Learning rate of a step: a linear rise over the first `warmup` share, then linear to zero or constant.

    Args:
        step: counted from 0.
        steps: number of steps of the training.
    """
    warm = round(train["warmup"] * steps)
    if step < warm:
        share = (step + 1) / warm
    elif train["schedule"] == "constant":
        share = 1.0
    else:
        share = (steps - step) / max(1, steps - warm)
    return float(train["lr"] * share)


def set_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give every group this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value


def _named(optimizer: torch.optim.Optimizer, models: nn.Module) -> dict[str, nn.Parameter]:
    learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in models.named_parameters() if id(p) in learning}


def state_tensors(optimizer: torch.optim.Optimizer, models: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as `<parameter>|<what>` → tensor."""
    named = _named(optimizer, models).items()
    return {f"{name}|{what}": t for name, p in named for what, t in optimizer.state[p].items()}


def load_state_tensors(optimizer: torch.optim.Optimizer, models: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `state_tensors` gave."""
    named = _named(optimizer, models)
    for path, tensor in tensors.items():
        name, what = path.split("|")
        parameter = named[name]
        optimizer.state[parameter][what] = tensor.to(parameter.device)
