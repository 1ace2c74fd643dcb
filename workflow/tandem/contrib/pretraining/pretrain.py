"""Stage `pretrain`: train an encoder from a corpus only."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tandem.cluster.progress import say
from tandem.config.settings import Execution
from tandem.config.training import Optimisation, Train
from tandem.contrib.pretraining.condenser import Condenser
from tandem.contrib.pretraining.cot_mae import CotMae
from tandem.contrib.pretraining.dup_mae import DupMae
from tandem.contrib.pretraining.ict import Ict
from tandem.contrib.pretraining.layers import join_head, start_head
from tandem.contrib.pretraining.lex_mae import LexMae
from tandem.contrib.pretraining.masking import Vocabulary
from tandem.contrib.pretraining.moco import Moco
from tandem.contrib.pretraining.objectives import (
    CoCondenser,
    Crop,
    Mlm,
    Pretraining,
    RetroMae,
)
from tandem.contrib.pretraining.options import PretrainParams
from tandem.contrib.pretraining.tsdae import Tsdae
from tandem.models.acceleration import accelerate
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.hub import check_length, load_tokenizer, save_encoder
from tandem.models.learning import set_dropout
from tandem.models.ragged import Ragged, round_up
from tandem.models.saving import DualShape, describe_encoder
from tandem.models.tokens import Tokens
from tandem.store.job import Job, writing
from tandem.training.checkpoints import State
from tandem.training.distributed import World
from tandem.training.forward import MULTIPLE, Budget
from tandem.training.lists import Lists
from tandem.training.loop import TrainingLoop
from tandem.training.objectives import Objective
from tandem.training.stage import start_towers, write_log

PretrainJob = Job[PretrainParams]
# A stage's `objective` → its class, which takes the model, tokens, `train`, the vocabulary, the budget and the world.
OBJECTIVES: dict[str, Any] = {
    "crop": Crop,
    "moco": Moco,
    "mlm": Mlm,
    "retromae": RetroMae,
    "cocondenser": CoCondenser,
    "condenser": Condenser,
    "tsdae": Tsdae,
    "ict": Ict,
    "cot_mae": CotMae,
    "dup_mae": DupMae,
    "lex_mae": LexMae,
}


def run(job: PretrainJob) -> None:
    """Train and write the encoder as a Hugging Face folder `hf/`, and `log.parquet`.

    Heads are dropped, except those of `mlm` and `lex_mae`, from which sparse encoders start.
    """
    with World.current().joined() as world:
        use_workers(job.execution.workers)
        budget = Budget(job.execution.micro_tokens, job.execution.graph_tokens)
        tokens, lists = passages_alone(Tokens.open(job.inputs["tokens"]))
        objective = build(job, tokens, budget, world)
        train = job.params.train
        shared = {name: getattr(train, name) for name in Optimisation.model_fields}
        size = train.passages_per_batch  # each passage is a list of one
        loop = Train.model_construct(**shared, queries_per_batch=size, list_size=1, choose="last")
        training = TrainingLoop(job, loop, objective, lists, None, world)
        state = training.run()
        if world.first:
            write(job, objective, state)
            training.checkpoints.remove()


def passages_alone(tokens: Tokens) -> tuple[Tokens, Lists]:
    """Return every passage as a list of its own: the list's query, without tokens, and its only passage."""
    rows, nothing = np.arange(len(tokens.passages)), np.empty(0, np.int64)
    empty = Ragged(nothing, np.broadcast_to(np.int64(0), len(rows) + 1))
    lists = Lists(rows, np.arange(len(rows) + 1), np.ones(len(rows), np.int8), rows)
    return replace(tokens, queries=empty), lists


def build(job: PretrainJob, tokens: Tokens, budget: Budget, world: World) -> Objective:
    """Build the objective with its encoder on the device, before any step."""
    params, train, start = job.params, job.params.train, job.inputs["start"]
    model = start_towers(start.folder / "hf", True, params, f"{job.kind} {job.key}")
    encoder: Any = model.towers["passage"]
    longest = int(np.diff(tokens.passages.offsets).max(initial=0)) + tokens.template.extra[0]
    check_length(encoder, round_up(longest, MULTIPLE), f"{job.inputs['tokens'].folder}: passage")
    torch.manual_seed(train.seed)  # heads
    kind = OBJECTIVES[params.objective]
    vocabulary = (
        Vocabulary.of(load_tokenizer(start.folder / "hf"), start.key) if kind.hides_tokens else None
    )
    objective: Objective = kind(model, tokens, train, vocabulary, budget, world)
    if isinstance(objective, Pretraining):
        brought = objective.train.head == "start" and start_head(
            objective.head, encoder, start.folder / "hf"
        )
        say(
            f"{job.kind} {job.key} · head that predicts tokens: {'of the start' if brought else 'random'}"
        )
    set_dropout(objective.models, train.dropout)
    objective.models.to(device())
    # objectives that predict tokens need the states in a padded grid
    execution = (
        Execution(attention="padded", compile="never") if kind.predicts_tokens else job.execution
    )
    accelerate(objective.models, execution, budget.micro_tokens, train.precision, training=True)
    return objective


def write(job: PretrainJob, objective: Objective, state: State) -> None:
    """Write the finished encoder, with the tokenizer it started with."""
    model: Any = objective.models["dual"]
    folder, params = job.inputs["start"].folder / "hf", job.params

    def with_head(encoder: Any, folder: Path) -> None:
        whole = (
            join_head(encoder, objective.head) if isinstance(objective, Mlm | LexMae) else encoder
        )
        whole.save_pretrained(folder)

    with writing(job) as draft:
        save_encoder(
            model.towers["passage"], load_tokenizer(folder), draft.folder / "hf", with_head
        )
        shape = DualShape(
            True, params.pooling, params.normalize, params.temperature, prompts=params.prompts
        )
        describe_encoder(draft.folder / "hf", model.dimension, shape)
        write_log(state, draft.path("log.parquet"))
        precision = resolve_precision(params.train.precision)
        draft.facts |= {"steps": state.step, "precision": precision, "device": device().type}
