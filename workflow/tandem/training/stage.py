"""Stages `model` and `untrained`: train a dual encoder, a cross-encoder or both."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from tandem.cluster.progress import say, warn
from tandem.config.losses import OWN_LOSSES
from tandem.config.representations import representation
from tandem.config.training import (
    ADAPTERS,
    ARRANGEMENTS,
    OWN_OBJECTIVES,
    QUERY_COPIES,
    TEACHING,
    CrossTrain,
    DualTrain,
    JointTrain,
)
from tandem.data.rows import IdRows
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder, load_cross, read_cross_form
from tandem.models.device import device, resolve_precision, use_workers
from tandem.models.dual import SIDES, DualEncoder, load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.learning import freeze_layers, keep_layers, set_dropout
from tandem.models.pair_prompts import PairOptions
from tandem.models.tokens import Tokens
from tandem.retrieval.pair_scores import open_tokens_of
from tandem.stages.base import Json, Params
from tandem.stages.training import (
    CROSS_FORMS,
    MODEL_SOURCES,
    PART_NOTES,
    ModelParams,
    UntrainedParams,
    Vectors,
    find_form,
)
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, load, writing
from tandem.training.checkpoints import LogRow, State
from tandem.training.distributed import SINGLE_PROCESS, World
from tandem.training.forward import Budget
from tandem.training.instances import Arrange
from tandem.training.lists import (
    Lists,
    Positives,
    join_lists,
    merge_lists,
    read_lists,
)
from tandem.training.loop import TrainingLoop, Watch
from tandem.training.numbered import NumberedCollection
from tandem.training.objectives import Cross, Joint, Ranker

ModelJob = Job[ModelParams]


def run(job: ModelJob) -> None:
    """Train, and write the model's parts, its description and its log; only the first of several processes writes.

    A job that has an input of `MODEL_SOURCES` makes its model from this input instead.
    """
    for role, write in MODEL_SOURCES.items():
        if role in job.inputs:
            load(write)(job)
            return
    with World.current().joined() as world:
        train_in(job, world)


def run_untrained(job: Job[UntrainedParams]) -> None:
    """Stage `untrained`: write the encoder of input `encoder` as a dual encoder after 0 steps of training."""
    folder = job.inputs["encoder"].folder / "hf"
    torch.manual_seed(0)  # vectors of tokens may need a new linear layer, which starts at random
    model = start_towers(folder, True, job.params, f"{job.kind} {job.key}")
    with writing(job) as draft:
        model.save(draft.folder / "dual", load_tokenizer(folder))
        write_json(draft.path("model.json"), {"objective": "dual", "parts": ["dual"], "steps": 0})


def train_in(job: ModelJob, world: World, loop: type[TrainingLoop] = TrainingLoop) -> None:
    """Train in this process, which may be one of several, by a loop of the class `loop`."""
    train = job.params.train
    use_workers(job.execution.workers)
    ignored = bool(job.inputs["candidates"].params.get("ignore_identical_ids"))
    splits = load("extras.judgements:list_learned_splits")(job)
    data = NumberedCollection.of(job.inputs["dataset"], ignored, *splits)
    drawn = read_training_lists(job)
    budget = Budget(
        job.execution.micro_tokens,
        job.execution.graph_tokens,
        load("extras.side_by_side:is_side_by_side")(job),
    )
    positives = data.list_positives(drawn, open_tokens(job).passages)
    watch: Watch | None = load("extras.training_additions:choose_watch")(
        job.key, job, drawn, positives, data
    )
    # A watch may have set some queries apart; the training learns from the others.
    lists = watch.lists if watch else drawn
    positives = watch.positives if watch else positives
    objective = build_ranker(job, positives, budget, world)
    if world.first:
        say(f"train {job.key} · {watch.label if watch else 'is not validated'}")

    if watch:
        train = watch.prepare(objective, train)
    train = load("extras.training_additions:apply_fits")(
        train, job.params.objective, objective, lists
    )
    training = loop(
        job,
        train,
        objective,
        lists,
        watch=watch,
        world=world,
        names=data.queries.ids,
        arrange=find_arrangement(job, data.queries),
    )
    if world.first and train.sizes == "data":
        sizes = [f"{name} {size:g}" for name, size in list_fitted_sizes(training).items()]
        say(f"train {job.key} · sizes from the data: {', '.join(sizes)}")

    state = training.run()
    if not world.first:
        return
    effect: Json = {}
    warnings: list[str] = []
    if training.last == training.steps:
        effect, warnings = describe_outcome(job.params, train, state.log, lists, watch)
    write_model(job, training, state, effect, warnings)
    training.checkpoints.remove()


def describe_outcome(
    params: ModelParams,
    train: DualTrain | CrossTrain | JointTrain,
    log: Sequence[LogRow],
    lists: Lists,
    watch: Watch | None,
) -> tuple[Json, list[str]]:
    """Return facts about what a finished training achieved, and warnings, from `OUTCOMES` and from its watch."""
    outcomes = load("extras.training_additions:list_outcomes")(params, train, log, lists)
    if watch:
        outcomes.append(watch.describe_outcome(train))
    facts: Json = {}
    warnings: list[str] = []
    for more, lines in outcomes:
        facts |= more
        warnings += lines
    return facts, warnings


def build_ranker(
    job: ModelJob, positives: Positives, budget: Budget, world: World = SINGLE_PROCESS
) -> Ranker:
    """Return the objective with its models on the device, before any step."""
    params = job.params
    train = params.train
    inputs = job.inputs
    tokens = open_tokens(job)
    torch.manual_seed(train.seed)  # the head of a new cross-encoder starts at random
    objective: Ranker
    match train:
        case DualTrain():
            start = start_dual(inputs["start"], params)
            shared = (tokens, train, positives, budget, world)
            own = OWN_LOSSES.get(train.loss)
            if own:
                learn_own = load(own.objective)
                objective = learn_own(start, *shared)
            elif train.own_objective:
                start_own = load(OWN_OBJECTIVES[train.own_objective].start)
                objective = start_own(job, start, *shared)
            else:
                learn_batch = load(start.objective)
                teacher = None
                if train.distil and train.distil.in_batch:
                    teacher = load(TEACHING["distil"].in_batch)(job, train)
                broken = None
                if train.self_teaching:
                    broken = load(QUERY_COPIES["self_teaching"])(job, train)
                objective = learn_batch(start, *shared, teacher=teacher, broken=broken)
        case CrossTrain():
            cross = start_cross(inputs["start"], params)
            if params.compares:
                start_own = load(OWN_OBJECTIVES["compares"].start)
                objective = start_own(job, cross, tokens, train, positives, budget, world)
            else:
                objective = Cross(cross, tokens, train, positives, budget, world)
        case JointTrain():
            dual = start_dual(inputs["retriever"], params)
            cross = start_cross(inputs["reranker"], params)
            cross_tokens = Tokens.open(inputs["cross_tokens"])
            objective = Joint(dual, cross, tokens, cross_tokens, train, positives, budget, world)
    check_input_lengths(objective.models, inputs)
    set_dropout(objective.models, train.dropout)
    if isinstance(train, JointTrain):
        for part, model in objective.models.items():
            set_dropout(model, train.part(part).dropout)
    if train.freeze_layers:
        freeze_layers(objective.models, train.freeze_layers)
    if params.lora:
        # adapters have a dropout of their own
        load(ADAPTERS["lora"].add)(objective.models, params.lora)
    objective.models.to(device())
    accelerate(objective.models, job.execution, budget.micro_tokens, train.precision, training=True)
    return objective


def open_tokens(job: ModelJob) -> Tokens:
    """Return the token ids of the queries and passages that the lists name."""
    return open_tokens_of(find_form(job.params), job.inputs["tokens"])


def check_input_lengths(models: nn.ModuleDict, inputs: Mapping[str, Artifact]) -> None:
    """Refuse texts that, padded as in encoding and re-ranking, have more tokens than a part has positions for."""
    for part, model in models.items():
        tokens = find_tokens(inputs, part)
        if isinstance(model, CrossEncoder | DualEncoder):
            query, passage = (tokens.params[f"{side}_length"] for side in SIDES)
            model.check_lengths(query, passage, Tokens.open(tokens).template, str(tokens.folder))


def find_tokens(inputs: Mapping[str, Artifact], part: str) -> Artifact:
    """Return the token ids that a part reads."""
    if part == "cross" and "cross_tokens" in inputs:
        return inputs["cross_tokens"]
    return inputs["tokens"]


def start_dual(artifact: Artifact, params: ModelParams) -> DualEncoder:
    """Return a dual encoder from an encoder or from a trained model."""
    if (artifact.folder / "hf").is_dir():
        model = start_towers(artifact.folder / "hf", params.shared, params, f"start {artifact.key}")
        if params.query_layers:
            keep_layers(model.towers["query"], params.query_layers)
        return model
    model = load_dual(artifact.folder / "dual")
    if not params.shared:
        model.untie()
    return model


def start_towers(folder: Path, shared: bool, params: Vectors, label: str) -> DualEncoder:
    """Return a new dual encoder on an encoder; `params` determine how it computes vectors, and a line reports this."""
    options = params.model_dump(include=set(Vectors.model_fields) - set(Params.model_fields))
    chosen = ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in options.items()
    )
    say(f"{label} · vectors by {chosen}")
    model: DualEncoder = representation[params.representation.type].start(folder, shared, **options)
    return model


def start_cross(artifact: Artifact, params: ModelParams) -> CrossEncoder:
    """Return the cross-encoder that a training starts from.

    It is a trained one, or a new one on an encoder, on a generator or on the passage tower of a dual encoder. If
    `params` name another form (`CROSS_FORMS`) than it has, it is converted.
    """
    form = find_form(params)
    options = PairOptions(params.prompt or "", params.words, 2 if params.compares else 1)
    if (artifact.folder / "hf").is_dir():
        model = CrossEncoder.start(artifact.folder / "hf", params.pooling, options)
    elif (artifact.folder / "cross").is_dir():
        model = load_cross(artifact.folder / "cross")
        if read_cross_form(artifact.folder / "cross") == form:
            return model
    else:
        tower = next(
            name for name in ("shared", "passage") if (artifact.folder / "dual" / name).is_dir()
        )
        model = CrossEncoder.start(artifact.folder / "dual" / tower, params.pooling, options)
    return model if form is None else load(CROSS_FORMS[form].start)(model, getattr(params, form))


def read_training_lists(job: ModelJob) -> Lists:
    """Return the training lists, joined, with a teacher's scores if there is one.

    Raises:
        UserError: the teacher has scored other lists.
    """
    candidates = job.inputs["candidates"]
    teacher = job.inputs.get("teacher")
    if teacher is not None and Path(teacher.upstream["candidates"]).name != candidates.key:
        problem = f"{teacher.folder} has scored {teacher.upstream['candidates']}"
        raise UserError(f"model: teacher {problem}; expected {candidates.folder}")
    scores = teacher.path("scores.npy") if teacher else None
    parts = [read_lists(candidates.path("candidates.parquet"), scores)]
    for more in job.many("candidates"):
        parts.append(read_lists(more.path("candidates.parquet")))
    return merge_lists(parts) if job.params.one_list else join_lists(parts)


def find_arrangement(job: ModelJob, queries: IdRows) -> Arrange | None:
    """Return the function that orders the instances of an epoch, if an input of `ARRANGEMENTS` provides one."""
    role = next((role for role in ARRANGEMENTS if role in job.inputs), None)
    arrange: Arrange | None = load(ARRANGEMENTS[role])(job, queries) if role else None
    return arrange


def list_fitted_sizes(training: TrainingLoop) -> dict[str, float]:
    """Return the sizes of a training that `sizes: data` may have fitted to the data."""
    train = training.train
    return {
        "list_size": train.list_size,
        "queries_per_batch": train.queries_per_batch,
        "lr": train.lr,
        "positives": train.positives,
        "steps": training.steps,
    }


def write_model(
    job: ModelJob, training: TrainingLoop, state: State, effect: Json, warnings: Sequence[str]
) -> None:
    """Write the finished model: `dual/` and `cross/`, `model.json`, `log.parquet`.

    Args:
        effect: facts of `describe_outcome`.
        warnings: its warnings.
    """
    params = job.params
    objective = training.objective
    lists = training.lists
    from_data = list_fitted_sizes(training) if params.train.sizes == "data" else {}
    with writing(job) as draft:
        for part, model in objective.models.items():
            tokens = find_tokens(job.inputs, part)
            encoder = open_artifact(Path(tokens.upstream["encoder"]), verify=False)
            model.save(draft.folder / part, load_tokenizer(encoder.folder / "hf"))  # type: ignore[operator]
            for note in PART_NOTES.values():
                load(note)(draft.folder / part, job, tokens, state, len(lists), from_data)
        description = {
            "objective": params.objective,
            "parts": sorted(objective.models),
            "steps": state.step,
            "best": training.watch.describe_choice(params.train) if training.watch else None,
        }
        write_json(draft.path("model.json"), description)
        write_log(state, draft.path("log.parquet"))

        draft.facts |= {
            "lists": len(lists),
            "steps": state.step,
            "precision": resolve_precision(params.train.precision),
            "device": device().type,
            "planned_steps": training.steps,
            **effect,
        }
        if from_data:
            draft.facts["sizes"] = from_data
        draft.facts |= training.describe_end()
        for line in warnings:
            warn(job, draft, line)


def write_log(state: State, path: Path) -> None:
    """Write the log as rows of step, name and value."""
    columns = {
        "step": pa.array([step for step, _, _ in state.log], pa.int64()),
        "name": pa.array([name for _, name, _ in state.log], pa.string()),
        "value": pa.array([value for _, _, value in state.log], pa.float64()),
    }
    pq.write_table(pa.table(columns), path)
