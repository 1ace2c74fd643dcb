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
    """Describe what looks at a training on its way, and may end it early and select weights: a validation, say.

    Attributes:
        lists: what is trained on.
        positives: known ones of their queries.
    """

    lists: Lists
    positives: Positives

    @property
    def label(self) -> str:
        """What the log says of it."""

    def prepare(self, ranker: Ranker, train: _Train) -> _Train:
        """Return the training as it is done: what looking takes may come out of its budget."""

    def begin(self, loop: "TrainingLoop", state: State) -> None:
        """Look at the start, or at what a resumed training begins with."""

    def follow(self, loop: "TrainingLoop", state: State) -> bool:
        """Look at the training after a step; whether it ends here."""

    def select(self, loop: "TrainingLoop") -> None:
        """Put the selected weights into the models of the first process, at the end."""

    def describe_choice(self, train: Train) -> list[float] | None:
        """Return value and step of the selected weights; None where they are the last ones."""

    def describe_outcome(self, train: Train) -> tuple[Json, list[str]]:
        """Return facts for the manifest, and warnings."""


@dataclass
class TrainingLoop:
    """Run one training.

    Attributes:
        watch: what looks at the training on its way; None: nothing does.
        world: the processes that train together; the first one writes and reports.
        arrange: arranges the instances of an epoch (`Instances`); None: they are in random order.
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
        self.steps = math.ceil(self.visits / train.queries_per_batch)
        self.last = self.steps  # up to which this job trains
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
                is_stopped = not is_last and stop.requested()
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
        """Refuse to save or hand over weights that are not numbers: a step may make them though its loss was fine."""
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
        """Load this job's newest checkpoint, else the start, in all processes."""
        state = self.load_state()
        if state.step and self.world.first:
            say(f"train {self.job.key} · resumes at step {state.step:,}/{self.steps:,}")
        return state

    def load_state(self) -> State:
        """Return what this job's newest checkpoint holds, else the start, after its weights are in the models."""
        return self.checkpoints.load(self.objective.models, self.optimizer)

    def describe_end(self) -> Json:
        """Return facts about what a finished training leaves beside its model."""
        return {}

    def draw(self, first: int) -> Iterator[tuple[Batch, int]]:
        """Yield the batches from step `first` on, each with the number of its tokens."""
        every = iter_batches(
            self.instances, self.train.queries_per_batch, self.seed, self.visits, first
        )
        for batch in itertools.islice(every, self.last - first):
            yield batch, self.count_tokens(batch)

    def step(self, state: State, batch: Batch) -> dict[str, float]:
        """Take one optimizer step and return the loss and its parts, the gradient's norm and the learning rate.

        Raises:
            UserError: loss or gradient is not a number; the state before the step is saved as a checkpoint, unless its
                weights are not numbers either and there is an older one.
        """
        models = self.objective.models
        models.train()
        self.optimizer.zero_grad(set_to_none=True)
        seeds = Seeds((self.seed, state.step), self.world.rank)
        values = self.world.total(self.objective.backward(batch, seeds))
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
        """Save the state before a step that cannot be taken, and raise the `UserError` that says why."""
        earlier = self.find_overflow()
        # Weights that are not numbers do not replace an older checkpoint, whose weights are sound.
        if self.world.first and not (earlier and self.checkpoints.find_all()):
            self.checkpoints.save(state, self.objective.models, self.optimizer)
        queries = ", ".join(self.names(batch.queries[:8]))
        since = f"; {earlier} held inf or nan before it" if earlier else ""
        raise UserError(
            f"train {self.job.key}: {problem} at step {state.step + 1} (queries {queries} …){since}"
        )

    def count_tokens(self, batch: Batch) -> int:
        """Count the tokens of the batch's passages and queries, without special tokens, for the throughput."""
        tokens = self.objective.tokens
        passages = tokens.passages.lengths(batch.passages[batch.mask])
        return int(passages.sum() + tokens.queries.lengths(batch.queries).sum())
