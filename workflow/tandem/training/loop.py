"""The training loop, the same for every objective: batches, optimizer steps, log, checkpoints."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import torch

from tandem.cluster.progress import Progress, say
from tandem.cluster.work import compute_origin, prefetch_items
from tandem.config.training import Train
from tandem.errors import UserError
from tandem.models.device import keep_memory, make_deterministic
from tandem.models.ragged import Ids
from tandem.stages.base import Json
from tandem.store.job import Job
from tandem.training.checkpoints import Checkpoints, State, Stop
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import Seeds
from tandem.training.instances import Arrange, Instances, count_visits, iter_batches
from tandem.training.lists import Batch, Lists, Positives
from tandem.training.objectives import Objective, Ranker
from tandem.training.optimizer import make_optimizer, schedule_lr, set_rate

_Train = TypeVar("_Train", bound=Train)


class Watch(Protocol):
    """Observe a training while it runs, as a validation does: end it early if need be, and select its weights.

    Attributes:
        lists: the lists that the training learns from.
        positives: the known positives of their queries.
    """

    lists: Lists
    positives: Positives

    @property
    def label(self) -> str:
        """Short description of this observer, for the log."""

    def prepare(self, ranker: Ranker, train: _Train) -> _Train:
        """Return the training's parameters, with a smaller budget if observing uses a part of it."""

    def begin(self, loop: "TrainingLoop", state: State) -> None:
        """Observe the models before the first step, or after a checkpoint has been loaded."""

    def follow(self, loop: "TrainingLoop", state: State) -> bool:
        """Observe the models after a step, and return whether the training ends here."""

    def select(self, loop: "TrainingLoop") -> None:
        """Load the selected weights into the models of the first process, after the last step."""

    def describe_choice(self, train: Train) -> list[float] | None:
        """Return the measured value and the step of the selected weights; None if these are the last ones."""

    def describe_outcome(self, train: Train) -> tuple[Json, list[str]]:
        """Return what was observed: facts for the manifest, and warnings."""


@dataclass
class TrainingLoop:
    """Run one training.

    Attributes:
        watch: observes the training; None: the training is not observed.
        world: the processes that train together; the first one writes and reports.
        names: returns the ids of some query rows, for messages.
        arrange: orders the instances of an epoch (see `Instances`); None: their order is random.
    """

    job: Job[Any]
    train: Train
    objective: Objective
    lists: Lists
    watch: "Watch | None"
    world: World = SINGLE_PROCESS
    names: Callable[[Ids], list[str]] = lambda rows: [f"row {row}" for row in rows]
    arrange: Arrange | None = None

    def __post_init__(self) -> None:
        train = self.train
        if train.seed is None:
            raise ValueError("train.seed is None: planning resolves it")
        self.seed = train.seed
        self.instances = Instances.of(self.lists, train, self.arrange)
        count = len(self.instances)
        per_batch = train.queries_per_batch
        self.visits = count_visits(count, per_batch, train.epochs, train.steps, self.instances.kind)
        self.steps = math.ceil(self.visits / per_batch)
        self.last = self.steps  # the step after which this job ends
        self.optimizer = make_optimizer(self.objective.models, train)
        inputs = {role: artifact.manifest.content for role, artifact in self.job.inputs.items()}
        origin = compute_origin(self.job, inputs)
        self.checkpoints = Checkpoints(self.job.out / "checkpoints", origin)

    def run(self) -> State:
        """Train to the last step of this job, from the newest checkpoint if there is one.

        The first process' models hold the selected weights afterwards.
        """
        make_deterministic()
        keep_memory()
        state = self.resume()
        if self.watch:
            self.watch.begin(self, state)
        seconds = self.job.execution.checkpoint_seconds
        saved = time.monotonic()
        label = f"train {self.job.key}"
        quiet = not self.world.first
        with (
            Progress(label, self.last, "steps", done=state.step, quiet=quiet) as progress,
            prefetch_items(self.draw(state.step)) as drawn,
            Stop(self.job.execution.stop_seconds, self.world) as stop,
        ):
            for batch, tokens in drawn:
                began = time.monotonic()
                values = self.step(state, batch)
                state.log += [(state.step, name, value) for name, value in values.items()]
                state.log.append(
                    (state.step, "tokens_per_second", tokens / (time.monotonic() - began))
                )
                progress.add(
                    1, tokens, " ".join(f"{name} {value:.4g}" for name, value in values.items())
                )
                if self.watch and self.watch.follow(self, state):
                    break

                is_last = state.step >= self.last
                is_stopped = not is_last and stop.is_requested()
                is_due = is_stopped or time.monotonic() - saved >= seconds
                if self.world.first and is_due and not is_last:
                    self.check_weights(state)
                    self.checkpoints.save(state, self.objective.models, self.optimizer)
                    saved = time.monotonic()
                if is_stopped:
                    stop.stop(f"train {self.job.key} at step {state.step:,}/{self.steps:,}")
        if self.world.first:
            self.finish(state)
        return state

    def finish(self, state: State) -> None:
        """Leave the selected weights in the models."""
        if self.watch:
            self.watch.select(self)
        self.check_weights(state)

    def check_weights(self, state: State) -> None:
        """Refuse weights that hold inf or nan: a step can produce them although its loss was finite."""
        name = self.find_overflow()
        if name:
            problem = f"{name} holds inf or nan after step {state.step}; lower train.lr"
            raise UserError(f"train {self.job.key}: {problem}")

    def find_overflow(self) -> str:
        """Return the name of the first parameter that holds inf or nan, else ""."""
        for name, weight in self.objective.models.named_parameters():
            if not torch.isfinite(weight).all():
                return name
        return ""

    def resume(self) -> State:
        """Load this job's newest checkpoint in all processes, and report at which step it resumes."""
        state = self.load_state()
        if state.step and self.world.first:
            say(f"train {self.job.key} · resumes at step {state.step:,}/{self.steps:,}")
        return state

    def load_state(self) -> State:
        """Load this job's newest checkpoint into models and optimizer; return its state, or a new one without any."""
        return self.checkpoints.load(self.objective.models, self.optimizer)

    def describe_end(self) -> Json:
        """Return facts about what a finished training leaves in addition to its model."""
        return {}

    def draw(self, first: int) -> Iterator[tuple[Batch, int]]:
        """Yield the batches from step `first` on, each with the number of its tokens."""
        batches = iter_batches(
            self.instances, self.train.queries_per_batch, self.seed, self.visits, first
        )
        for batch in itertools.islice(batches, self.last - first):
            yield batch, self.count_tokens(batch)

    def step(self, state: State, batch: Batch) -> dict[str, float]:
        """Take one optimizer step; return the loss and its parts, the gradient's norm and the learning rate.

        Raises:
            UserError: loss or gradient is inf or nan. The state before the step is saved as a checkpoint first, unless
                its weights hold inf or nan, too, and an older checkpoint exists.
        """
        models = self.objective.models
        models.train()
        self.optimizer.zero_grad(set_to_none=True)
        seeds = Seeds((self.seed, state.step), self.world.rank)
        values = self.world.sum_values(self.objective.backward(batch, seeds))
        self.world.sum_gradients(models)
        lr = schedule_lr(state.step, self.steps, self.train)
        set_rate(self.optimizer, lr)
        learning = [p for p in models.parameters() if p.grad is not None]
        values["gradient_norm"] = float(
            torch.nn.utils.clip_grad_norm_(learning, self.train.clip or math.inf)
        )
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(values[name]):
                self.give_up(state, batch, f"{name} is {values[name]}")
        self.optimizer.step()
        state.step += 1
        return {**values, "lr": lr}

    def give_up(self, state: State, batch: Batch, problem: str) -> NoReturn:
        """Save the state before a step that failed, and raise a `UserError` with its problem."""
        overflown = self.find_overflow()
        # An older checkpoint, whose weights are finite, is not replaced by weights that are not.
        if self.world.first and not (overflown and self.checkpoints.find_all()):
            self.checkpoints.save(state, self.objective.models, self.optimizer)
        queries = ", ".join(self.names(batch.queries[:8]))
        since = f"; {overflown} held inf or nan before it" if overflown else ""
        raise UserError(
            f"train {self.job.key}: {problem} at step {state.step + 1} (queries {queries} …){since}"
        )

    def count_tokens(self, batch: Batch) -> int:
        """Count the batch's tokens, without special ones; the throughput in the log is computed from them."""
        tokens = self.objective.tokens
        passages = tokens.passages.lengths(batch.passages[batch.mask])
        return int(passages.sum() + tokens.queries.lengths(batch.queries).sum())
