"""The optimisers of a training, its learning rate, and sizes that follow from the data and a budget of minutes.

What steps and validations cost is decided by the data and the encoder: no clock is read, and no machine asked.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tandem.config.training import JointTrain, Optimisation, Train
from tandem.models.tokens import Tokens
from tandem.training.instances import Instances
from tandem.training.lists import OPERATIONS_PER_SECOND, Lists, count_visited, fit_steps

_Train = TypeVar("_Train", bound=Train)
# Operations per weight and token.
FORWARD_OPERATIONS = 2
_BACKWARD_OPERATIONS = 4
_STEP_OPERATIONS = FORWARD_OPERATIONS + _BACKWARD_OPERATIONS
# Sizes from the data.
_SHORTEST_LIST = 2  # passages
_LONGEST_LIST = 8
_VISITS_OF_A_POSITIVE = 2  # which a budget is spent on before lists grow
_QUERIES_PER_STEP = 32  # of dual encoders, whose other queries are negatives
_PASSAGES_PER_STEP = 32  # of all others
# The learning rates of the embedded default, and up to which steps and weights of an encoder's layers they hold.
_LEARNING_RATES = {"dual": 1e-4, "cross": 1.5e-4, "joint": 5e-5}
_STEPS_OF_THE_RATES = 400
WEIGHTS_OF_THE_RATES = 10.6e6


class Lamb(torch.optim.Optimizer):
    """Scale Adam's step, tensor by tensor, to the weights' norm: LAMB (You et al. 2020, Algorithm 2 with φ(z) = z).

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

    def _update(self, weights: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weights]
        beta1, beta2 = group["betas"]
        if not state:
            # 1 - β₂ᵗ in float32 is rough
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

    options: list[dict[str, Any]] = []
    for (share, is_decayed), parameters in groups.items():
        decay = train.weight_decay if is_decayed else 0.0
        options.append({"params": parameters, "share": share, "weight_decay": decay})
    optimizer: torch.optim.Optimizer
    if train.optimizer == "lamb":
        optimizer = Lamb(options, lr=train.lr)
    elif train.optimizer == "adafactor":
        # Shazeer and Stern 2018: a step is relative to the root mean square of the weights.
        optimizer = torch.optim.Adafactor(options, lr=train.lr)
    else:
        make = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
        optimizer = make(options, lr=train.lr, fused=True)
    optimizer.register_step_post_hook(_count_changes)
    return optimizer


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


def fit_sizes(
    objective: str, models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: _Train
) -> _Train:
    """Return the training with `list_size`, `queries_per_batch` and `lr` from data, encoder and `budget_minutes`.

    Lists are as long as the budget allows with two visits of every positive, and no longer than they were drawn;
    the learning rate falls with the square root of steps and weights. The objective is `dual`, `cross` or `joint`.
    """
    minutes = train.budget_minutes or 0.0
    shortest = train.model_copy(
        update={"queries_per_batch": 1, "list_size": _SHORTEST_LIST, "positives": 1}
    )
    operations_of_a_list = count_step_operations(models, tokens, lists, shortest)
    lists_within = minutes * 60 * OPERATIONS_PER_SECOND / operations_of_a_list
    visits = _VISITS_OF_A_POSITIVE * int(lists.positives.sum())
    passages_of_a_visit = _SHORTEST_LIST * lists_within / visits
    positives, negatives = count_visited(lists, _LONGEST_LIST, train.positives)
    longest = int((positives + negatives).max())
    size = int(min(max(passages_of_a_visit, _SHORTEST_LIST), longest))

    sized = train.model_copy(
        update={"list_size": size, "positives": min(train.positives, size - 1)}
    )
    queries = _QUERIES_PER_STEP if objective == "dual" else _PASSAGES_PER_STEP // sized.visit_size
    sized = sized.model_copy(update={"queries_per_batch": queries})

    operations = count_step_operations(models, tokens, lists, sized)
    steps = fit_steps(minutes, operations, len(Instances.of(lists, sized)), queries)
    largest = max(count_layer_weights(model) for model in models.values())
    shrink = min(1.0, _STEPS_OF_THE_RATES / steps) * min(1.0, WEIGHTS_OF_THE_RATES / largest)
    lr = _LEARNING_RATES[objective] * math.sqrt(shrink)
    return sized.model_copy(update={"lr": float(f"{lr:.1e}")})


def count_step_operations(
    models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train
) -> float:
    """Return the operations of a step over lists of mean size and texts of mean length, without attention's."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra  # special tokens
    positives, negatives = count_visited(lists, train.visit_size, train.positives)
    size = float((positives + negatives).mean())
    tokens_of_list = {
        "dual": size * (passage + single) + query + single,
        "cross": size * (passage + query + pair - _average_cut(tokens, lists)),
    }
    operations = 0.0
    for part, model in models.items():
        weights: float = count_layer_weights(model)
        if train.freeze_layers:  # they are spared the backward pass
            frozen = count_layer_weights(model, frozen=True)
            weights -= _BACKWARD_OPERATIONS / _STEP_OPERATIONS * frozen
        operations += weights * tokens_of_list[part]
    return _STEP_OPERATIONS * train.queries_per_batch * operations


def _average_cut(tokens: Tokens, lists: Lists) -> float:
    """Return the tokens that a pair loses to the template's `longest_pair`, on average."""
    if tokens.template.longest_pair is None:
        return 0.0
    query_rows, passage_rows = lists.pair_rows(0, len(lists.passages))
    queries = tokens.queries.lengths(query_rows)
    passages = tokens.passages.lengths(passage_rows)
    uncut = queries + passages + tokens.template.extra[1]
    return float((uncut - tokens.template.pair_lengths(queries, passages)).mean())


def count_layer_weights(model: nn.Module, frozen: bool = False) -> int:
    """Return the weights of the encoders that a passage goes through, or with `frozen` those that do not learn.

    Embeddings do not count: they only look rows up.
    """
    towers = getattr(model, "towers", {"passage": model})
    total = 0
    for side, encoder in towers.items():
        if side == "query":
            continue
        for name, weights in encoder.named_parameters():
            if "embeddings" in name or (frozen and weights.requires_grad):
                continue
            total += weights.numel()
    return total
