"""Adam or AdamW with a linear schedule."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tandem.artifact import Job
from tandem.errors import UserError
from tandem.models.device import keep_memory
from tandem.models.ragged import Ids
from tandem.overlap import ahead
from tandem.progress import Progress, say
from tandem.training.checkpoints import Checkpoints, Segment, State, stopping
from tandem.training.distributed import ALONE, World
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Lists, batches, visits_in
from tandem.training.objectives import Objective
from tandem.training.validation import Validation, validate


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


@dataclass
class Training:
    """What one training needs.

    Attributes:
        job: names the training and says how to run it.
        objective: the loss and its models.
        lists: what it learns from.
        validation: dev lists, or None.
        budget: how much is computed at once.
        world: the processes that train together; the first one writes and reports.
        names: names the queries of some rows, for messages.
    """

    job: Job
    objective: Objective
    lists: Lists
    validation: Validation | None
    budget: Budget
    world: World = ALONE
    names: Callable[[Ids], list[str]] = lambda rows: [f"row {row}" for row in rows]

    def __post_init__(self) -> None:
        train: dict[str, Any] = self.job.params["train"]
        visits = visits_in(len(self.lists), train["queries_per_batch"], train["epochs"], train["steps"])
        self.visits, self.steps = visits, math.ceil(visits / train["queries_per_batch"])
        self.segment = Segment(self.job)
        self.last = self.segment.last(self.steps)
        self.optimizer = make_optimizer(self.objective.models, train)
        self.checkpoints = Checkpoints(self.job.out / "checkpoints")

    def run(self) -> State:
        """Train to the end, or to that of this job's segment; from the newest checkpoint if there is one.

        The first process' models hold the chosen weights after; a segment leaves its state for the next one.
        """
        train = self.job.params["train"]
        torch.use_deterministic_algorithms(True, warn_only=True)
        # It finds bugs, at a twelfth of a step's time; nothing here reads memory it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        keep_memory()
        state = self.resumed()
        seconds, saved = self.job.execution.checkpoint_seconds, time.monotonic()
        label, quiet = f"train {self.job.key}", not self.world.first
        with (
            Progress(label, self.last, "steps", done=state.step, quiet=quiet) as progress,
            ahead(self.drawn(state.step)) as drawn,
            stopping(self.job.execution.stop_seconds, self.world) as stop,
        ):
            for batch, tokens in drawn:
                began = time.monotonic()
                told = self.step(state, batch)
                state.log += [(state.step, name, value) for name, value in told.items()]
                state.log.append((state.step, "tokens_per_second", tokens / (time.monotonic() - began)))
                progress.add(1, tokens, " ".join(f"{name} {value:.4g}" for name, value in told.items()))
                self.maybe_validate(state)
                stopped = state.step < self.last and stop.asked()
                due = stopped or time.monotonic() - saved >= seconds
                if self.world.first and state.step < self.last and due:
                    self.check_weights(state)
                    self.checkpoints.save(state, self.objective.models, self.optimizer)
                    saved = time.monotonic()
                if stopped:
                    stop.give_way(f"train {self.job.key} at step {state.step:,}/{self.steps:,}")
        if self.world.first:
            if self.segment.until is not None:
                self.check_weights(state)
            self.segment.leave(state, self.objective.models, self.optimizer)
            if train["select"] == "best" and state.best:
                self.checkpoints.load_best(self.objective.models, state.best[1])
            self.check_weights(state)
        return state

    def check_weights(self, state: State) -> None:
        """Refuse to keep or hand over weights that are no numbers: a step may make them though its loss was fine."""
        if name := self.overflowed():
            told = f"{name} holds inf or nan after step {state.step}; lower train.lr"
            raise UserError(f"train {self.job.key}: {told}")

    def overflowed(self) -> str:
        """The name of the first parameter that holds inf or nan; none where all are numbers."""
        named = self.objective.models.named_parameters()
        return next((name for name, weight in named if not torch.isfinite(weight).all()), "")

    def resumed(self) -> State:
        """The state to go on from; every process reads the same files."""
        state = self.segment.load(self.checkpoints, self.objective.models, self.optimizer)
        if state.step and self.world.first:
            say(f"train {self.job.key} · resumes at step {state.step:,}/{self.steps:,}")
        return state

    def drawn(self, first: int) -> Iterator[tuple[Batch, int]]:
        """The batches from step `first` on, with their tokens."""
        train = self.job.params["train"]
        per_batch, size, seed = train["queries_per_batch"], train["list_size"], train["seed"]
        made = batches(self.lists, per_batch, size, seed, self.visits, first)
        return ((batch, self.tokens_in(batch)) for batch in itertools.islice(made, self.last - first))

    def step(self, state: State, batch: Batch) -> dict[str, float]:
        """One optimizer step; returns the loss and its parts, the gradient's norm and the learning rate.

        Raises:
            UserError: loss or gradient is no number; the state before the step is kept as a checkpoint, unless its
                weights are none either and there is an older one.
        """
        train, models = self.job.params["train"], self.objective.models
        models.train()
        self.optimizer.zero_grad(set_to_none=True)
        told = self.world.total(self.objective.backward(batch, Seeds((train["seed"], state.step), self.world.rank)))
        self.world.sum_gradients(models)
        lr = rate(state.step, self.steps, train)
        set_rate(self.optimizer, lr)
        learning = [p for p in models.parameters() if p.grad is not None]
        told["gradient_norm"] = float(torch.nn.utils.clip_grad_norm_(learning, train["clip"] or math.inf))
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(told[name]):
                earlier = self.overflowed()
                if self.world.first and not (earlier and self.checkpoints.there()):  # what is whole is worth more
                    self.checkpoints.save(state, models, self.optimizer)
                found = f"{name} is {told[name]} at step {state.step + 1}"
                asked = f"(queries {', '.join(self.names(batch.queries[:8]))} …)"
                since = f"; {earlier} held inf or nan before it" if earlier else ""
                raise UserError(f"train {self.job.key}: {found} {asked}{since}")
        self.optimizer.step()
        state.step += 1
        return {**told, "lr": lr}

    def maybe_validate(self, state: State) -> None:
        """Validate every so many steps and after the last; keep the weights where the value is the best so far."""
        train = self.job.params["train"]
        every = train["validate_every"]
        if self.validation is None or not every or (state.step % every and state.step != self.steps):
            return
        values = validate(self.objective, self.validation, self.budget.graph_tokens, self.world)
        state.log += [(state.step, f"dev RR@10 ({part})", value) for part, value in values.items()]
        shown = ", ".join(f"{part} {value:.4f}" for part, value in values.items())
        if self.world.first:
            say(f"train {self.job.key} · step {state.step:,}/{self.steps:,} · dev RR@10 of lists: {shown}")
        value = values.get("dual", values.get("cross", 0.0))
        if train["select"] == "best" and (state.best is None or value > state.best[0]):
            self.check_weights(state)
            state.best = (value, state.step)
            if self.world.first:
                self.checkpoints.save_best(self.objective.models, state.step)

    def tokens_in(self, batch: Batch) -> int:
        """Tokens of the batch's passages and queries, without special tokens: what throughput counts."""
        tokens = self.objective.tokens
        passages = tokens.passages.lengths(np.maximum(batch.passages, 0))
        return int(np.where(batch.mask, passages, 0).sum() + tokens.queries.lengths(batch.queries).sum())
