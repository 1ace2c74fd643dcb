"""Validation within a training: on dev queries, or on training queries that are set apart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.torch import save_file
from torch import nn

from tandem.cluster.progress import say
from tandem.config.training import Train
from tandem.contrib.validation.outcomes import (
    warn_of_few_queries,
    warn_of_loss_to_lists,
    warn_of_no_gain,
)
from tandem.errors import UserError
from tandem.extras.training_budgets import USUAL_VALIDATIONS, fit_validations
from tandem.extras.training_operations import FORWARD_OPERATIONS, count_layer_weights
from tandem.extras.validation.validation_points import (
    MEASURE,
    ValidationPoint,
    find_chosen,
    log_point,
    read_points,
)
from tandem.extras.validation.validation_sets import (
    ValidationSet,
    read_validation,
    set_apart,
    validate,
)
from tandem.models.tokens import Tokens
from tandem.stages.base import Json
from tandem.stages.training import ModelParams
from tandem.store.files import replacing
from tandem.store.job import Job
from tandem.training.checkpoints import (
    BEST,
    STEP,
    Checkpoints,
    State,
    list_saved_tensors,
    load_weights,
    move_to_cpu,
)
from tandem.training.lists import Lists, Positives
from tandem.training.loop import TrainingLoop
from tandem.training.numbered import NumberedCollection
from tandem.training.objectives import Ranker

_Train = TypeVar("_Train", bound=Train)


@dataclass
class Validating:
    """Validate a training at its start, every so many steps and at its end; see `training.loop.Watch`.

    Attributes:
        lists: lists that are trained on.
        positives: known positives, without those of queries that are set apart.
        validation: queries and passages that are validated on.
        validations: number of validations after that of the start, if `train.validate_every` is not set.
        every: steps between two validations.
        history: validations so far.
        ranker: the objective whose scores are measured.
        is_segment: whether this is a part of a training, whose checkpoint another stage chooses.
    """

    lists: Lists
    positives: Positives
    validation: ValidationSet
    is_segment: bool = False
    validations: int = USUAL_VALIDATIONS
    every: int = 0
    history: list[ValidationPoint] = field(default_factory=list)
    ranker: Ranker = field(init=False)

    @property
    def label(self) -> str:
        """See `Watch`."""
        return f"validates on {self.validation.origin}"

    def prepare(self, ranker: Ranker, train: _Train) -> _Train:
        """See `Watch`: if dev chooses, validations use a part of the budget."""
        self.ranker = ranker
        if not train.budget_minutes or train.choose != "dev" or train.validate_every is not None:
            return train
        cost = count_validation_operations(ranker.models, ranker.tokens, self.validation)
        self.validations, minutes = fit_validations(train.budget_minutes, cost)
        return train.model_copy(update={"budget_minutes": minutes})

    def begin(self, loop: TrainingLoop, state: State) -> None:
        """Validate the models before the first step, unless the log of a resumed training has values already."""
        usual = math.ceil(loop.steps / self.validations) if loop.train.choose == "dev" else 0
        self.every = loop.train.validate_every or usual
        self.history = read_points(state.log)
        if not self.history:
            self._validate_if_due(loop, state)

    def follow(self, loop: TrainingLoop, state: State) -> bool:
        """Validate if a validation is due, and return whether the training ends because it gains no more."""
        self._validate_if_due(loop, state)
        return is_exhausted(loop.train, self.history)

    def _validate_if_due(self, loop: TrainingLoop, state: State) -> None:
        """Validate, and save the weights that are the best so far."""
        if not self.every:
            return
        if state.step % self.every != 0 and state.step != loop.steps:
            return
        values = validate(self.ranker, self.validation, loop.world)
        point = ValidationPoint(state.step, values)
        self.history.append(point)
        state.log += log_point(point)
        if loop.world.first:
            text = ", ".join(f"{part} {value:.4f}" for part, value in point.values.items())
            say(
                f"train {loop.job.key} · step {state.step:,}/{loop.steps:,} · dev {MEASURE}: {text}"
            )
        if find_chosen(loop.train, self.history) is point:
            loop.check_weights(state)
            if loop.world.first:
                save_best(loop.checkpoints, loop.objective.models, state.step)

    def select(self, loop: TrainingLoop) -> None:
        """Put the best weights into the models if dev chooses."""
        chosen = find_chosen(loop.train, self.history)
        if chosen:
            load_weights(loop.objective.models, find_best_file(loop.checkpoints, chosen.step))

    def describe_choice(self, train: Train) -> list[float] | None:
        """Return value and step of the validation whose weights become the model; None if the last ones do."""
        chosen = find_chosen(train, self.history)
        return [chosen.mean, chosen.step] if chosen else None

    def describe_outcome(self, train: Train) -> tuple[Json, list[str]]:
        """Return what was validated on and which step was chosen, and warnings."""
        if not self.history:
            return {}, []
        chosen = find_chosen(train, self.history) or self.history[-1]
        warnings = [
            warn_of_few_queries(train.choose, len(self.validation.batch.queries)),
            warn_of_no_gain(self.history, train.choose, is_segment=self.is_segment),
            warn_of_loss_to_lists(chosen, self.validation.as_listed),
        ]
        facts: Json = {"validated_on": self.validation.origin, "chosen_step": chosen.step}
        return facts, [line for line in warnings if line]


def start_validation(
    job: Job[ModelParams], lists: Lists, positives: Positives, data: NumberedCollection
) -> Validating | None:
    """Choose what is validated on, dev queries or training queries set apart, and leave it out of the training.

    Return None if nothing is validated on.

    Raises:
        UserError: `train.choose` is dev, and there are neither.
    """
    train = job.params.train
    validation = None
    if "validation" not in job.inputs and train.choose != "dev":
        return None
    if "validation" in job.inputs:
        run = job.inputs["validation"]
        validation = read_validation(data, run, train.validation_queries, train.validation_depth)
    if validation is None and train.choose == "dev":
        lists, validation = set_apart(
            lists, positives, data, train.validation_queries, train.seed or 0
        )
        if validation is None:
            problem = "there is no dev query with a relevant passage and only one training query; set it to last"
            raise UserError(f"train {job.key}: train.choose is dev, but {problem}")
        positives = positives.without(validation.batch.queries)
    if validation is None:
        return None
    is_segment = job.params.until is not None
    return Validating(lists, positives, validation, is_segment)


def is_exhausted(train: Train, history: Sequence[ValidationPoint]) -> bool:
    """Return whether the last `patience` validations were no better than the best before them."""
    chosen = find_chosen(train, history)
    if chosen is None or train.patience is None:
        return False
    return sum(point.step > chosen.step for point in history) >= train.patience


def save_best(checkpoints: Checkpoints, models: nn.Module, step: int) -> None:
    """Write the weights of the best validation so far, under their step; remove those that no resumption needs."""
    checkpoints.folder.mkdir(parents=True, exist_ok=True)
    with replacing(find_best_file(checkpoints, step)) as partial:
        save_file(move_to_cpu(list_saved_tensors(models)), partial)
    every = checkpoints.find_all()
    if not every:
        return
    # A resumption begins at the newest checkpoint and needs the best weights up to its step.
    newest = find_best_file(checkpoints, int(every[-1].name.removeprefix(STEP)))
    up_to_newest = [path for path in checkpoints.find_best() if path <= newest]
    for old in up_to_newest[:-1]:
        old.unlink()


def find_best_file(checkpoints: Checkpoints, step: int) -> Path:
    """Return the file of the weights that are the best so far after a step."""
    return checkpoints.folder / f"{BEST}{step:08d}.safetensors"


def count_validation_operations(
    models: nn.ModuleDict, tokens: Tokens, validation: ValidationSet
) -> float:
    """Return the operations of one validation: forward passes of a dual encoder's queries and pool, or of pairs."""
    single, _ = tokens.template.extra  # special tokens
    batch = validation.batch
    rows = np.maximum(batch.passages, 0)
    queries = tokens.queries.lengths(batch.queries)
    passages = tokens.passages.lengths(rows)
    pool = tokens.passages.lengths(validation.pool)
    texts = tokens.passages.count_texts(rows)
    pairs = tokens.template.pair_lengths(queries[:, None], passages, texts)
    tokens_read = {
        "dual": (pool + single).sum() + (queries + single).sum(),
        "cross": np.where(batch.mask, pairs, 0).sum(),
    }
    operations = sum(
        count_layer_weights(model) * float(tokens_read[part]) for part, model in models.items()
    )
    return FORWARD_OPERATIONS * operations
