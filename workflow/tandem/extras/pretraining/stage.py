"""Stage `pretrain`: an encoder learns from a corpus alone, from random weights or further."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tandem.config.encoders import CoCondenserTrain, Masking, RetroMaeTrain, Spans
from tandem.config.execution import Execution
from tandem.config.training import Optimisation, Train
from tandem.extras.pretraining.masking import Vocabulary
from tandem.extras.pretraining.objectives import CoCondenser, Crop, Mlm, RetroMae
from tandem.models.acceleration import accelerate
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder
from tandem.models.hub import check_length, load_tokenizer, save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import describe_encoder
from tandem.models.tokens import Tokens
from tandem.stages.training import PretrainParams
from tandem.store.job import Job, writing
from tandem.training.checkpoints import Checkpoints, State
from tandem.training.distributed import ALONE, World
from tandem.training.forward import MULTIPLE, Budget
from tandem.training.lists import Lists
from tandem.training.loop import Training
from tandem.training.objectives import Objective
from tandem.training.stage import prepare, write_log

PretrainJob = Job[PretrainParams]


def run(job: PretrainJob) -> None:
    """Train and write the encoder as a Hugging Face folder `hf/`, and `log.parquet`; heads are dropped."""
    with World.current().joined() as world:
        use_workers(job.execution.workers)
        budget = Budget(job.execution.micro_tokens, job.execution.graph_tokens)
        tokens, lists = passages_alone(Tokens.open(job.inputs["tokens"]))
        objective = build(job, tokens, budget, world)
        state = Training(job, list_training(job.params), objective, lists, None, world).run()
        if world.first:
            write(job, objective, state)
            Checkpoints(job.out / "checkpoints").remove()


def passages_alone(tokens: Tokens) -> tuple[Tokens, Lists]:
    """Every passage as a list of its own: query and only passage, the query without tokens."""
    rows, nothing = np.arange(len(tokens.passages)), np.empty(0, np.int64)
    empty = Ragged(nothing, np.broadcast_to(np.int64(0), len(rows) + 1))
    lists = Lists(rows, np.arange(len(rows) + 1), np.ones(len(rows), np.int8), rows)
    return replace(tokens, queries=empty), lists


def list_training(params: PretrainParams) -> Train:
    """The loop's parameters: a batch of passages is one of lists of one."""
    shared = {name: getattr(params.train, name) for name in Optimisation.model_fields}
    return Train.model_construct(
        **shared, queries_per_batch=params.train.passages_per_batch, list_size=1, choose="last"
    )


def build(job: PretrainJob, tokens: Tokens, budget: Budget, world: World) -> Objective:
    """The objective with its encoder on the device, before any step."""
    params, train, start = job.params, job.params.train, job.inputs["start"]
    shape = (params.pooling, params.normalize, params.temperature)
    model = DualEncoder.start(start.folder / "hf", True, *shape)
    encoder: Any = model.towers["passage"]
    longest = int(np.diff(tokens.passages.offsets).max(initial=0)) + tokens.template.extra[0]
    check_length(encoder, -(-longest // MULTIPLE) * MULTIPLE, f"{job.inputs['tokens'].folder}: passage")
    torch.manual_seed(train.seed)  # heads
    crops = params.objective == "crop"
    vocabulary = None if crops else Vocabulary.of(load_tokenizer(start.folder / "hf"), start.key)
    objective = make_objective(model, tokens, train, vocabulary, budget, world)
    prepare(objective.models, train.dropout)
    # hidden tokens stand in a grid
    execution = job.execution if crops else Execution(attention="padded", compile="never")
    accelerate(objective.models, execution, budget.micro_tokens, train.precision, training=True)
    return objective


def make_objective(
    model: DualEncoder,
    tokens: Tokens,
    train: Spans | Masking | RetroMaeTrain | CoCondenserTrain,
    vocabulary: Vocabulary | None,
    budget: Budget,
    world: World = ALONE,
) -> Objective:
    """The objective of these parameters; only crops need no vocabulary."""
    match train, vocabulary:
        case CoCondenserTrain(), Vocabulary():
            return CoCondenser(model, tokens, train, vocabulary, budget, world)
        case RetroMaeTrain(), Vocabulary():
            return RetroMae(model, tokens, train, vocabulary, budget, world)
        case Masking(), Vocabulary():
            return Mlm(model, tokens, train, vocabulary, budget, world)
        case Spans(), _:
            return Crop(model, tokens, train, budget, world)
    raise ValueError(f"{type(train).__name__} needs a vocabulary")


def write(job: PretrainJob, objective: Objective, state: State) -> None:
    """The finished encoder, with the tokenizer it started with."""
    model: Any = objective.models["dual"]
    folder, params = job.inputs["start"].folder / "hf", job.params
    with writing(job) as draft:
        save_encoder(model.towers["passage"], load_tokenizer(folder), draft.folder / "hf")
        describe_encoder(draft.folder / "hf", model.dimension, params.pooling, params.normalize)
        write_log(state, draft.path("log.parquet"))
        precision = resolve_precision(params.train.precision)
        draft.facts |= {"steps": state.step, "precision": precision, "device": device().type}
