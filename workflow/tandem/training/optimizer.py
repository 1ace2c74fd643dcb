"""Make the optimizer of a training, and compute the learning rate of each step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tandem.config.training import JointTrain, Optimisation
from tandem.stages.base import Json
from tandem.store.job import load

# groups of parameters, each with its options, as torch's optimizers take them
Groups = Iterable[Json]


def make_optimizer(models: nn.Module, train: Optimisation) -> torch.optim.Optimizer:
    """Return the optimizer of the parameters that learn; biases and layer norms are not decayed.

    A group's `share` is its part's peak learning rate divided by the training's: 1 unless the part has its own.
    """
    # keys: the share, and whether the parameters are decayed
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
    optimizer: torch.optim.Optimizer = load("extras.training_additions:start_optimizer")(
        train.optimizer, options, train.lr
    )
    optimizer.register_step_post_hook(_raise_versions)
    return optimizer


def make_adamw(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return AdamW over groups of parameters."""
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def make_adam(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return Adam over groups of parameters."""
    return torch.optim.Adam(groups, lr=lr, fused=True)


def _raise_versions(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise every parameter's version, so that outdated copies are recognised; the fused kernel does not raise it."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of a step; each group gets its `share` of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["share"]


def schedule_lr(step: int, steps: int, train: Optimisation) -> float:
    """Return the learning rate of a step; steps count from 0.

    It rises linearly over the first `warmup` of the steps, then falls linearly to 0 or stays constant.
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
