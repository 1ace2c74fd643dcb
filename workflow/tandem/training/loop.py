"""The training loop, the same for every objective."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tandem.artifact import Job
from tandem.errors import UserError
from tandem.progress import Progress, say
from tandem.training.checkpoint import Checkpoints, State
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Lists, batches, visits_in
from tandem.training.objectives import Objective
from tandem.training.optimizer import make_optimizer, rate, set_rate
from tandem.training.validation import Validation, validate


@dataclass
class Training:
    """What one training needs.

    Attributes:
        job: names the training and says how to run it.
        objective: the loss and its models.
        lists: what it learns from.
        validation: dev lists, or None.
        budget: how much is computed at once.
    """

    job: Job
    objective: Objective
    lists: Lists
    validation: Validation | None
    budget: Budget

    def run(self) -> State:
        """Train to the end, from the newest checkpoint if there is one; the models hold the chosen weights after."""
        train: dict[str, Any] = self.job.params["train"]
        models = self.objective.models
        torch.use_deterministic_algorithms(True, warn_only=True)
        # It finds bugs, at a twelfth of a step's time; nothing here reads memory it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        optimizer = make_optimizer(models, train)
        checkpoints = Checkpoints(self.job.out / "checkpoints")
        state = checkpoints.load(models, optimizer)
        per_batch, size = train["queries_per_batch"], train["list_size"]
        visits = visits_in(len(self.lists), per_batch, train["epochs"], train["steps"])
        steps = math.ceil(visits / per_batch)
        if state.step:
            say(f"train {self.job.key} · resumes at step {state.step:,}/{steps:,}")
        seconds, saved = self.job.execution.get("checkpoint_seconds", 120), time.monotonic()
        with Progress(f"train {self.job.key}", steps, "steps", done=state.step) as progress:
            for batch in batches(self.lists, per_batch, size, train["seed"], visits, first=state.step):
                tokens, began = self.tokens_in(batch), time.monotonic()
                told = self.step(optimizer, batch, rate(state.step, steps, train), state.step)
                state.step += 1
                state.log += [(state.step, name, value) for name, value in told.items()]
                state.log.append((state.step, "tokens_per_second", tokens / (time.monotonic() - began)))
                progress.add(1, tokens, " ".join(f"{name} {value:.4g}" for name, value in told.items()))
                self.maybe_validate(state, steps, checkpoints)
                if state.step < steps and time.monotonic() - saved >= seconds:
                    checkpoints.save(state, models, optimizer)
                    saved = time.monotonic()
        if train["select"] == "best" and state.best:
            checkpoints.load_best(models, state.best[1])
        return state

    def step(self, optimizer: torch.optim.Optimizer, batch: Batch, lr: float, number: int) -> dict[str, float]:
        """One optimizer step; returns the loss and its parts, the gradient's norm and the learning rate."""
        train = self.job.params["train"]
        self.objective.models.train()
        optimizer.zero_grad(set_to_none=True)
        told = self.objective.backward(batch, Seeds((train["seed"], number)))
        if not math.isfinite(told["loss"]):
            rows = ", ".join(str(row) for row in batch.queries[:8])
            raise UserError(f"train {self.job.key}: loss is {told['loss']} at step {number + 1} (query rows {rows} …)")
        set_rate(optimizer, lr)
        learning = [p for p in self.objective.models.parameters() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(learning, train["clip"] or math.inf)
        optimizer.step()
        return {**told, "gradient_norm": float(norm), "lr": lr}

    def maybe_validate(self, state: State, steps: int, checkpoints: Checkpoints) -> None:
        """Validate every so many steps and after the last; keep the weights where the value is the best so far."""
        train = self.job.params["train"]
        every = train["validate_every"]
        if self.validation is None or not every or (state.step % every and state.step != steps):
            return
        values = validate(self.objective, self.validation, self.budget.graph_tokens)
        state.log += [(state.step, f"dev RR@10 ({part})", value) for part, value in values.items()]
        shown = ", ".join(f"{part} {value:.4f}" for part, value in values.items())
        say(f"train {self.job.key} · step {state.step:,}/{steps:,} · dev RR@10 of lists: {shown}")
        value = values.get("dual", values.get("cross", 0.0))
        if train["select"] == "best" and (state.best is None or value > state.best[0]):
            state.best = (value, state.step)
            checkpoints.save_best(self.objective.models, state.step)

    def tokens_in(self, batch: Batch) -> int:
        """Tokens of the batch's passages and queries, without special tokens: what throughput counts."""
        tokens = self.objective.tokens
        passages = tokens.passages.lengths(np.maximum(batch.passages, 0))
        return int(np.where(batch.mask, passages, 0).sum() + tokens.queries.lengths(batch.queries).sum())
