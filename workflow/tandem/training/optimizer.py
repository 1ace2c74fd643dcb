"""The optimisers of a training, its learning rate, and sizes that follow from the data and a budget of minutes.

What steps and validations cost is decided by the data and the encoder: no clock is read, and no machine asked.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tandem.config.training import JointTrain, Optimisation, Train
from tandem.models.tokens import Tokens
from tandem.training.instances import Instances
from tandem.training.lists import OPERATIONS_PER_SECOND, Lists, count_visited, fit_steps
from tandem.training.validation import ValidationSet

T = TypeVar("T", bound=Train)
OPERATIONS = 6  # of a training step, per weight and token: 2 of its forward pass, 4 of its backward pass
FORWARD = 2  # operations of a forward pass, per weight and token
BACKWARD = 4 / OPERATIONS  # share of a step's operations that frozen layers are spared: those of its backward pass
SHORTEST, LONGEST = 2, 8  # passages of a list
VISITS = 2  # of every positive, which a budget is spent on before lists grow
QUERIES, PASSAGES = 32, 32  # of a step: of dual encoders, whose other queries are negatives, and of all others
RATES = {"dual": 1e-4, "cross": 1.5e-4, "joint": 5e-5}  # learning rates of the embedded default
STEPS, WEIGHTS = 400, 10.6e6  # up to which `RATES` hold: of a training, and in an encoder's layers


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, Algorithm 2 with φ(z) = z): Adam's step scaled, tensor by tensor, to the weights' norm.

    m = β₁ m + (1 - β₁) g,  v = β₂ v + (1 - β₂) g²,  r = (m / (1 - β₁ᵗ)) / (√(v / (1 - β₂ᵗ)) + ε)
    x ← x - η ‖x‖ / ‖r + λx‖ (r + λx); the quotient is 1 where one of the norms is 0.

    η is `lr`, β₁ and β₂ are `betas`, ε is `eps`, λ is `weight_decay`.
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
    """Learning rate of a step from 0 on: a linear rise over the first `warmup` share, then linear to zero or constant.

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


def data_sizes(objective: str, models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: T) -> T:
    """The training with `list_size`, `queries_per_batch` and `lr` from the data, the encoder and `budget_minutes`.

    Lists are as long as the budget allows with two visits of every positive, and no longer than they were drawn;
    the learning rate falls with the square root of steps and weights. The objective is `dual`, `cross` or `joint`.
    """
    minutes = train.budget_minutes or 0.0
    short = train.model_copy(update={"queries_per_batch": 1, "list_size": SHORTEST, "positives": 1})
    passages = SHORTEST * minutes * 60 * OPERATIONS_PER_SECOND / operations_per_step(models, tokens, lists, short)
    longest = int(np.add(*count_visited(lists, LONGEST, train.positives)).max())
    size = int(min(max(passages / (VISITS * int(lists.positives.sum())), SHORTEST), longest))
    sized = train.model_copy(update={"list_size": size, "positives": min(train.positives, size - 1)})
    queries = QUERIES if objective == "dual" else PASSAGES // sized.visit_size
    sized = sized.model_copy(update={"queries_per_batch": queries})
    instances = len(Instances.of(lists, sized))
    steps = fit_steps(minutes, operations_per_step(models, tokens, lists, sized), instances, queries)
    largest = max(layer_weights(model) for model in models.values())
    lr = RATES[objective] * math.sqrt(min(1.0, STEPS / steps) * min(1.0, WEIGHTS / largest))
    return sized.model_copy(update={"lr": float(f"{lr:.1e}")})


def operations_per_step(models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train) -> float:
    """Operations of a step over lists of mean size and texts of mean length; what attention adds is left out."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra
    positives, negatives = count_visited(lists, train.visit_size, train.positives)
    size = float((positives + negatives).mean())
    both = passage + query + pair - _cut(tokens, lists)
    of_list = {"dual": size * (passage + single) + query + single, "cross": size * both}
    weights: dict[str, float] = {part: layer_weights(model) for part, model in models.items()}
    if train.freeze_layers:
        weights = {part: weights[part] - BACKWARD * layer_weights(model, frozen=True) for part, model in models.items()}
    return OPERATIONS * train.queries_per_batch * sum(weights[part] * of_list[part] for part in weights)


def operations_per_validation(models: nn.ModuleDict, tokens: Tokens, validation: ValidationSet) -> float:
    """Operations of one validation: a forward pass of a dual encoder's queries and pool, of a cross-encoder's pairs."""
    (single, pair), batch, pool = tokens.template.extra, validation.batch, validation.pool
    queries, passages = tokens.queries.lengths(batch.queries), tokens.passages.lengths(np.maximum(batch.passages, 0))
    read = {
        "dual": (tokens.passages.lengths(pool) + single).sum() + (queries + single).sum(),
        "cross": np.where(batch.mask, passages + queries[:, None] + pair, 0).sum(),
    }
    return FORWARD * sum(layer_weights(model) * float(read[part]) for part, model in models.items())


def _cut(tokens: Tokens, lists: Lists) -> float:
    """The tokens that a pair loses to the template's `longest_pair`, on average."""
    if tokens.template.longest_pair is None:
        return 0.0
    queries, passages = lists.pair_rows(0, len(lists.passages))
    lengths = tokens.queries.lengths(queries), tokens.passages.lengths(passages)
    return float((sum(lengths) + tokens.template.extra[1] - tokens.template.pair_lengths(*lengths)).mean())


def layer_weights(model: nn.Module, frozen: bool = False) -> int:
    """Weights of the encoders that a passage goes through, without their embeddings, which only look rows up.

    With `frozen` those of them that do not learn.
    """
    towers = getattr(model, "towers", {"passage": model})
    encoders = [encoder for side, encoder in towers.items() if side != "query"]
    named = (pair for encoder in encoders for pair in encoder.named_parameters())
    return sum(w.numel() for name, w in named if "embeddings" not in name and not (frozen and w.requires_grad))
