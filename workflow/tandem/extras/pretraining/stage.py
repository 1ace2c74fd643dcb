"""Stage `pretrain`: an encoder learns from a corpus alone, from the beginning or further."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tandem.artifact import Job, writing
from tandem.config.execution import Execution
from tandem.extras.pretraining.bottleneck import CoCondenser, RetroMae
from tandem.extras.pretraining.masking import Vocabulary
from tandem.extras.pretraining.objectives import Crop, Mlm, Pretraining
from tandem.models.acceleration import accelerate
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import DualEncoder
from tandem.models.hub import check_length, load_tokenizer, save_encoder
from tandem.models.ragged import Ragged
from tandem.models.saving import describe_encoder
from tandem.models.tokens import Tokens
from tandem.training.checkpoints import Checkpoints, State
from tandem.training.distributed import World
from tandem.training.forward import MULTIPLE, Budget
from tandem.training.lists import Lists
from tandem.training.loop import Training
from tandem.training.objectives import Objective
from tandem.training.stage import prepare, write_log

HIDING: dict[str, type[Pretraining]] = {"mlm": Mlm, "retromae": RetroMae, "cocondenser": CoCondenser}


def passages_alone(tokens: Tokens) -> tuple[Tokens, Lists]:
    """Every passage as a list of its own: query and only passage, the query without tokens."""
    rows, nothing = np.arange(len(tokens.passages)), np.empty(0, np.int64)
    unasked = Ragged(nothing, np.broadcast_to(np.int64(0), len(rows) + 1))
    lists = Lists(rows, np.arange(len(rows) + 1), np.ones(len(rows), np.int8), rows)
    return replace(tokens, queries=unasked), lists


def build(job: Job, tokens: Tokens, budget: Budget, world: World) -> Objective:
    """The objective with its encoder on the device, before any step."""
    params, train, start = job.params, job.params["train"], job.inputs["start"]
    model = DualEncoder.start(start.folder / "hf", {**params, "shared": True})
    encoder: Any = model.towers["passage"]
    longest = int(np.diff(tokens.passages.offsets).max(initial=0)) + tokens.template.extra[0]
    check_length(encoder, -(-longest // MULTIPLE) * MULTIPLE, f"{job.inputs['tokens'].folder}: passage")
    torch.manual_seed(train["seed"])  # heads
    objective: Objective
    if params["objective"] == "crop":
        objective = Crop(model, tokens, train, budget, world)
    else:
        vocabulary = Vocabulary.of(load_tokenizer(start.folder / "hf"), start.key)
        objective = HIDING[params["objective"]](model, tokens, train, vocabulary, budget, world)
    prepare(objective.models, train["dropout"])
    # hidden tokens stand in a grid
    how = job.execution if params["objective"] == "crop" else Execution(attention="padded", compile="never")
    accelerate(objective.models, how, budget.micro_tokens, train["precision"], training=True)
    return objective


def as_lists(job: Job) -> Job:
    """The job in the words of the loop: a batch of passages is one of lists of one."""
    train = job.params["train"]
    told = {"queries_per_batch": train["passages_per_batch"], "list_size": 1, "select": "last", "validate_every": None}
    return replace(job, params={**job.params, "train": {**train, **told}})


def run(job: Job) -> None:
    """Train and write the encoder as a Hugging Face folder `hf/`, and `log.parquet`; heads are dropped."""
    with World.current().joined() as world:
        use_workers(job.execution.workers)
        budget = Budget(job.execution.micro_tokens, job.execution.graph_tokens)
        tokens, lists = passages_alone(Tokens.open(job.inputs["tokens"]))
        objective = build(job, tokens, budget, world)
        state = Training(as_lists(job), objective, lists, None, budget, world=world).run()
        if world.first:
            write(job, objective, state)
            Checkpoints(job.out / "checkpoints").remove()


def write(job: Job, objective: Objective, state: State) -> None:
    """The finished encoder, with the tokenizer it started with."""
    model: Any = objective.models["dual"]
    folder, pooling = job.inputs["start"].folder / "hf", job.params["pooling"]
    with writing(job) as draft:
        save_encoder(model.towers["passage"], load_tokenizer(folder), draft.folder / "hf")
        describe_encoder(draft.folder / "hf", model.dimension, pooling, job.params["normalize"])
        write_log(state, draft.path("log.parquet"))
        precision = resolve_precision(job.params["train"]["precision"])
        draft.facts |= {"steps": state.step, "precision": precision, "device": device().type}
