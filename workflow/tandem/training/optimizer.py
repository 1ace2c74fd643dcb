"""The optimisers of a training and its learning rate."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tandem.config.training import OPTIMIZERS, JointTrain, Optimisation
from tandem.stages.base import Json
from tandem.store.job import load

Groups = Iterable[Json]  # of parameters, with the options of each


def make_optimizer(models: nn.Module, train: Optimisation) -> torch.optim.Optimizer:
    """Return the optimizer over the parameters that learn; biases and layer norms are not decayed.

    A group's `share` is that of its part's peak learning rate in the training's: 1 unless the part has its own.
    """
    # by share, and whether they are decayed
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in models.named_parameters():
        if not parameter.requires_grad:
            continue
        lr = train.lr
        if isinstance(train, JointTrain):
            part = name.partition(".")[0]
            lr = train.part(part).lr or train.lr
        share = lr / train.lr
        is_decayed = parameter.dim() > 1 and "LayerNorm" not in name
        groups.setdefault((share, is_decayed), []).append(parameter)

    options: list[Json] = []
    for (share, is_decayed), parameters in groups.items():
        decay = train.weight_decay if is_decayed else 0.0
        options.append({"params": parameters, "share": share, "weight_decay": decay})
    optimizer: torch.optim.Optimizer = load(OPTIMIZERS[train.optimizer])(options, train.lr)
    optimizer.register_step_post_hook(_count_changes)
    return optimizer


def make_adamw(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return AdamW over groups of parameters."""
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def make_adam(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return Adam over groups of parameters."""
    return torch.optim.Adam(groups, lr=lr, fused=True)


def _count_changes(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise every parameter's version, which the fused kernel does not: layouts of weights are renewed by it."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of a step; parts with a rate of their own get their share of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["share"]


def schedule_lr(step: int, steps: int, train: Optimisation) -> float:
    """Return the learning rate of a step from 0 on: a linear rise over the first `warmup` share, then what follows it.

    `linear_from_start` is what the releases of RocketQA, RocketQAv2 and DuReader-retrieval compute (`optimization.py`
    with a warm-up): the rise begins at 0, and the fall counts from the first step, so that the rate drops by `warmup`
    of its peak where the rise ends.
    """
    warm = round(train.warmup * steps)
    if train.schedule == "linear_from_start":
        share = step / warm if step < warm else (steps - step) / steps
    elif step < warm:
        share = (step + 1) / warm
    elif train.schedule == "constant":
        share = 1.0
    else:
        share = (steps - step) / max(1, steps - warm)
    return float(train.lr * share)
