"""Tandem's side of the training benchmark: the real loop and objectives, on texts in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from texts import Examples
from training_peers import LR, STEP, TEMPERATURE, crossed

from tandem.config.settings import Execution
from tandem.config.training import CrossTrain, DualTrain, JointTrain
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.device import device
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.learning import set_dropout
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens
from tandem.store.job import Job
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Lists, Positives
from tandem.training.loop import TrainingLoop
from tandem.training.objectives import Cross, Joint, Objective
from tandem.training.objectives.dual import BatchDualObjective

COMMON = {"lr": LR, "warmup": 0.0, "schedule": "constant", "dropout": 0.0, "seed": 1}
TRAIN: dict[str, DualTrain | CrossTrain | JointTrain] = {
    "de": DualTrain(**COMMON),
    "ce": CrossTrain(**COMMON),
    "joint": JointTrain(**COMMON),
}


def ragged(tokenizer: Any, texts: list[str]) -> Ragged:
    """Return the token ids of texts, without special tokens."""
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Ragged(np.concatenate([np.asarray(row, np.uint16) for row in rows]), offsets)


def objective(
    what: str,
    folder: Path,
    examples: Examples,
    precision: str,
    budget: Budget,
    execution: Execution | None = None,
) -> tuple[Objective, Lists]:
    """Return the objective over a starting encoder, and the lists from which it learns."""
    tokenizer = load_tokenizer(folder)
    size = len(examples.passages[0])
    passages = ragged(tokenizer, [text for group in examples.passages for text in group])
    tokens = Tokens(passages, ragged(tokenizer, examples.queries), Template.of(tokenizer))
    count = len(examples.queries)
    rows = np.arange(count * size)
    lists = Lists(np.arange(count), np.arange(count + 1) * size, np.ones(count, np.int64), rows)
    own = {"precision": precision, "list_size": size, "queries_per_batch": STEP[what][0]}
    train = TRAIN[what].model_copy(update=own)
    positives = Positives(np.arange(count), rows[::size])
    goal = started(folder, tokens, train, positives, budget)
    set_dropout(goal.models, train.dropout)
    goal.models.to(device())
    accelerate(goal.models, execution or Execution(), budget.micro_tokens, precision, training=True)
    return goal, lists


def started(
    folder: Path,
    tokens: Tokens,
    train: DualTrain | CrossTrain | JointTrain,
    positives: Positives,
    budget: Budget,
) -> Objective:
    """Return the objective with models that start from an encoder."""
    torch.manual_seed(1)
    towers = {"shared": True, "pooling": "mean", "normalize": True, "temperature": TEMPERATURE}
    match train:
        case DualTrain():
            return BatchDualObjective(
                DualEncoder.start(folder, **towers), tokens, train, positives, budget
            )
        case CrossTrain():
            return Cross(CrossEncoder.load(crossed(folder)), tokens, train, positives, budget)
    dual, cross = DualEncoder.start(folder, **towers), CrossEncoder.load(crossed(folder))
    return Joint(dual, cross, tokens, tokens, train, positives, budget)


def train(
    what: str,
    folder: Path,
    out: Path,
    examples: Examples,
    precision: str,
    steps: int,
    side_by_side: bool = True,
) -> None:
    """Train `steps` steps by the loop that the stage `model` runs."""
    budget = Budget(2048, 16384, side_by_side)
    goal, lists = objective(what, folder, examples, precision, budget)
    config = goal.train.model_copy(update={"steps": steps})  # type: ignore[attr-defined]
    params = {
        "objective": {"de": "dual", "ce": "cross", "joint": "joint"}[what],
        "train": config.model_dump(mode="json"),
    }
    TrainingLoop(
        Job("model", out, params, {}, {"checkpoint_seconds": 1e9}), config, goal, lists, None
    ).run()


def gradients(what: str, folder: Path, examples: Examples) -> dict[str, torch.Tensor]:
    """Return the gradients of the first batch in float32, by parameter."""
    goal, lists = objective(what, folder, examples, "fp32", Budget(2048, 16384, side_by_side=True))
    queries, size = STEP[what]
    goal.models.eval()
    goal.backward(
        Batch(lists.queries[:queries], lists.passages[: queries * size].reshape(queries, size)),
        Seeds((0, 0)),
    )
    return {
        name: p.grad.to("cpu") for name, p in goal.models.named_parameters() if p.grad is not None
    }
