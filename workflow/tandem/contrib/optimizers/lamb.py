"""LAMB, and PyTorch's Adafactor."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.stages.base import Json
from tandem.training.optimizer import Groups


def make_lamb(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return LAMB over groups of parameters."""
    return Lamb(groups, lr=lr)


def make_adafactor(groups: Groups, lr: float) -> torch.optim.Optimizer:
    """Return Adafactor, whose step is relative to the root mean square of the weights (Shazeer and Stern 2018)."""
    return torch.optim.Adafactor(groups, lr=lr)


class Lamb(torch.optim.Optimizer):
    """Scale Adam's step, tensor by tensor, to the weights' norm: LAMB (You et al. 2020, Algorithm 2 with φ(z) = z).

    m = β₁ m + (1 - β₁) g,  v = β₂ v + (1 - β₂) g²,  r = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)
    x ← x - η ‖x‖ / ‖r + λx‖ (r + λx); the quotient is 1 where one of the norms is 0.

    η is `lr`, β₁ and β₂ are `betas`, ε is `eps`, λ is `weight_decay`.
    """

    def __init__(
        self,
        params: Groups,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the weights that have a gradient."""
        if closure is not None:
            raise ValueError("Lamb takes no closure")
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is not None:
                    self._update(weights, weights.grad, group)

    def _update(self, weights: Tensor, gradient: Tensor, group: Json) -> None:
        state = self.state[weights]
        beta1, beta2 = group["betas"]
        if not state:
            # in float32, 1 - β₂ᵗ would be imprecise
            state["step"] = torch.zeros((), dtype=torch.float64, device=weights.device)
            state["exp_avg"] = torch.zeros_like(weights)
            state["exp_avg_sq"] = torch.zeros_like(weights)
        state["step"] += 1
        steps = state["step"]
        mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].lerp_(gradient.square(), 1 - beta2)
        root = (square / (1 - beta2**steps)).sqrt()
        ratio = mean / (1 - beta1**steps) / (root + group["eps"])
        update = ratio + group["weight_decay"] * weights
        norm = weights.norm()
        length = update.norm()
        trust = torch.where((norm > 0) & (length > 0), norm / length, torch.ones_like(norm))
        weights.sub_(group["lr"] * trust * update)
