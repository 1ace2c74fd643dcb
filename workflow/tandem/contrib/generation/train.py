"""Stage `train_generator`: a generator learns from a collection's own training pairs.

It learns to write the query of a relevant passage, or for a query the context that answers it; see `contexts`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tandem.cluster.progress import say, warn
from tandem.config.training import ADAPTERS, Optimisation, Train
from tandem.contrib.generation.contexts import read_contexts
from tandem.contrib.generation.generators import end_tokens, load_generator, start_token
from tandem.contrib.generation.options import TrainGeneratorParams
from tandem.contrib.generation.reader import Reader, check_positions, target_ids
from tandem.contrib.generation.seq2seq import Seq2Seq
from tandem.data.collection import Collection, join_contents
from tandem.errors import UserError
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.hub import save_encoder
from tandem.models.learning import set_dropout
from tandem.models.tokens import Template, Tokens
from tandem.store.job import Job, load, writing
from tandem.training.checkpoints import State
from tandem.training.distributed import World
from tandem.training.forward import Budget
from tandem.training.lists import Lists
from tandem.training.loop import TrainingLoop
from tandem.training.stage import write_log

TrainJob = Job[TrainGeneratorParams]
MANY = 0.01  # a larger share of texts that are cut is worth a warning


@dataclass(frozen=True)
class Pairs:
    """The input and the target of each training pair, and how many texts were cut."""

    tokens: Tokens
    cut: int

    @property
    def lists(self) -> Lists:
        """Return every pair as a list of its own: its query is the target, its only passage the input."""
        rows = np.arange(len(self.tokens.queries))
        return Lists(rows, np.arange(len(rows) + 1), np.ones(len(rows), np.int8), rows)


def run(job: TrainJob) -> None:
    """Train and write the generator as a Hugging Face folder `hf/`, and `log.parquet`; see `Seq2Seq`.

    Of several processes, the first one writes.
    """
    with World.current().joined() as world:
        use_workers(job.execution.workers)
        params, train = job.params, job.params.train
        model, tokenizer = load_generator(job.inputs["start"].folder / "hf")
        check_positions(model, params.length, params.target_length, job.key)
        pairs = read_pairs(job, model, tokenizer)
        torch.manual_seed(train.seed or 0)  # for the adapters' weights
        objective = build(job, model, pairs.tokens, padding_of(model, tokenizer), world)
        shared = {name: getattr(train, name) for name in Optimisation.model_fields}
        # A batch of pairs is a batch of lists with one passage each.
        loop = Train.model_construct(
            **shared, queries_per_batch=train.pairs_per_batch, list_size=1, choose="last"
        )
        training = TrainingLoop(job, loop, objective, pairs.lists, None, world)
        state = training.run()
        if world.first:
            write(job, model, tokenizer, pairs, state)
            training.checkpoints.remove()


def read_pairs(job: TrainJob, model: Any, tokenizer: Any) -> Pairs:
    """Tokenise the inputs and the targets of a split's pairs, in the order of the labels.

    Memory: the texts and token ids of the relevant passages.
    """
    collection, params = Collection(job.inputs["dataset"]), job.params
    if params.target == "query":
        pairs = read_query_pairs(collection, params.split)
    else:
        pairs = read_contexts(collection, params.split, params.target, params.match)
    reader = Reader(tokenizer, params.prompt, params.length, job.key)
    sources = reader.read([source for source, _ in pairs])
    start, end = (
        start_token(model) if model.config.is_encoder_decoder else None,
        end_tokens(model, tokenizer)[0],
    )
    targets = target_ids(
        tokenizer, [target for _, target in pairs], params.target_length, start, end
    )
    return Pairs(Tokens(sources, targets, Template.of(tokenizer)), reader.cut)


def read_query_pairs(collection: Collection, split: str) -> list[tuple[str, str]]:
    """Return (passage, query) of a split's relevant passages, in the order of the labels."""
    queries, judged = collection.queries(split), collection.qrels(split)
    named: list[tuple[str, str]] = []
    for query, grades in judged.items():
        named += [(query, doc) for doc, relevance in grades.items() if relevance > 0]
    passages = collection.texts({doc for _, doc in named})
    known = [(query, doc) for query, doc in named if doc in passages and query in queries]
    if not known:
        raise UserError(
            f"{collection.artifact.folder}: no query of split {split} has a relevant passage"
        )
    return [(join_contents(*passages[doc]), queries[query]) for query, doc in known]


def build(job: TrainJob, model: Any, tokens: Tokens, padding: int, world: World) -> Seq2Seq:
    """Return the objective with its model on the device, before any step."""
    budget = Budget(job.execution.micro_tokens, job.execution.graph_tokens)
    objective = Seq2Seq(model, tokens, job.params.train, padding, budget, world)
    set_dropout(objective.models, job.params.train.dropout)
    if job.params.lora:
        # adapters have a dropout of their own
        load(ADAPTERS["lora"].add)(objective.models, job.params.lora)
    objective.models.to(device())
    return objective


def padding_of(model: Any, tokenizer: Any) -> int:
    """Return the id that pads rows, which nothing reads; for decoders without one the end token."""
    padding = tokenizer.pad_token_id
    return int(end_tokens(model, tokenizer)[0] if padding is None else padding)


def write(job: TrainJob, model: Any, tokenizer: Any, pairs: Pairs, state: State) -> None:
    """Write the finished generator, with the tokenizer it started with."""
    count, params = len(pairs.tokens.queries), job.params
    with writing(job) as draft:
        save_encoder(model, tokenizer, draft.folder / "hf")
        write_log(state, draft.path("log.parquet"))
        draft.facts |= {"pairs": count, "steps": state.step, "cut": pairs.cut}
        draft.facts |= {
            "precision": resolve_precision(params.train.precision),
            "device": device().type,
        }
        line = f"{pairs.cut:,} of {count:,} texts have more than {params.length} tokens and are cut"
        if pairs.cut > MANY * count:
            warn(job, draft, line)
        elif pairs.cut:
            say(f"{job.kind} {job.key} · {line}")
