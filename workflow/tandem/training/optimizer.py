"""The optimisers of a training, and its learning rate: LAMB, since torch has none."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tandem.config.optimisation import Optimisation
from tandem.config.training import JointTrain


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, Algorithm 2 with φ(z) = z): Adam's step scaled, tensor by tensor, to the weights' norm.

    m = β₁ m + (1 - β₁) g,  v = β₂ v + (1 - β₂) g²,  r = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)
    x ← x - η ‖x‖ / ‖r + λx‖ (r + λx); the quotient is 1 where one of the norms is 0.

    Args:
        lr: η.
        betas: β₁ and β₂.
        weight_decay: λ.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the weights that have a gradient."""
        if closure is not None:
            raise ValueError("Lamb takes no closure")
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._update(weights, weights.grad, group)

    def _update(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[weights], group["betas"]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float64, device=weights.device)  # 1 - β₂ᵗ in float32 is rough
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weights), torch.zeros_like(weights)
        state["step"] += 1
        mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].lerp_(gradient.square(), 1 - beta2)
        root = (square / (1 - beta2 ** state["step"])).sqrt()
        update = mean / (1 - beta1 ** state["step"]) / (root + group["eps"]) + group["weight_decay"] * weights
        norm, length = weights.norm(), update.norm()
        trust = torch.where((norm > 0) & (length > 0), norm / length, torch.ones_like(norm))
        weights.sub_(group["lr"] * trust * update)


def make_optimizer(models: nn.Module, train: Optimisation) -> torch.optim.Optimizer:
    """The optimizer over the parameters that learn; biases and layer norms are not decayed.

    A group's `share` is that of its part's peak learning rate in the training's: 1 unless the part has its own.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in models.named_parameters():
        if parameter.requires_grad:
            own = train.part(name.partition(".")[0]).lr if isinstance(train, JointTrain) else None
            decayed = not (parameter.dim() == 1 or "LayerNorm" in name)
            groups.setdefault(((own or train.lr) / train.lr, decayed), []).append(parameter)
    options: list[dict[str, Any]] = [
        {"params": parameters, "share": share, "weight_decay": train.weight_decay if decayed else 0.0}
        for (share, decayed), parameters in groups.items()
    ]
    optimizer: torch.optim.Optimizer
    if train.optimizer == "lamb":
        optimizer = Lamb(options, lr=train.lr)
    else:
        make = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
        optimizer = make(options, lr=train.lr, fused=True)
    optimizer.register_step_post_hook(_count_changes)
    return optimizer


def _count_changes(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise every parameter's version, which the fused kernel does not: layouts of weights are renewed by it."""
    torch.autograd.graph.increment_version([p for group in optimizer.param_groups for p in group["params"]])


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of a step; parts with a rate of their own get their share of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["share"]


def rate(step: int, steps: int, train: Optimisation) -> float:
    """Learning rate of a step: a linear rise over the first `warmup` share, then linear to zero or constant.

    `linear_from_start` is what the releases of RocketQA, RocketQAv2 and DuReader-retrieval compute (`optimization.py`
    with a warm-up): the rise begins at 0, and the fall counts from the first step, so that the rate drops by `warmup`
    of its peak where the rise ends.

    Args:
        step: counted from 0.
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
