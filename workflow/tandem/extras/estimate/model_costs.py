"""Cost functions of computations with models: encoding texts, training and pre-training, and their steps."""

from dataclasses import replace
from math import ceil
from typing import Any

from tandem.config.training import Lora
from tandem.extras.estimate.resources import (
    DUAL_SPECIAL,
    PROCESS_BYTES,
    Setting,
    Work,
    cost,
    params_of,
)
from tandem.extras.estimate.stage_costs import UNLIMITED, count_texts_each, measure_mapped_tokens
from tandem.extras.training_budgets import (
    USUAL_VALIDATIONS,
    count_added_passages,
    fit_steps,
    fit_validations,
)
from tandem.plan.graph import Stage
from tandem.plan.sizes import EncoderShape
from tandem.training.instances import count_visits

BYTES_PER_TRAINED_WEIGHT = 16  # the weight, its gradient and two moments, float32 each
FORWARD_AND_BACKWARD = 3  # cost of both together, in forward passes

_CACHED_FORWARD_AND_BACKWARD = 4  # one forward pass more where gradients are cached
# A micro-batch fills a gradient of the whole vocabulary and adds it to the sum. A step reads that sum, and reads and
# writes weights and moments.
_UPDATES_PER_MICRO_BATCH, _UPDATES_PER_STEP = 2, 4
# one training query in so many is set apart where there is no dev (extras/validation/validation_sets.py)
_TRAINING_QUERIES_PER_VALIDATED = 10


def measure_learning_weights(shape: EncoderShape, lora: Lora | None) -> float:
    """Return the bytes of an encoder's weights while it learns; with adapters its own are frozen, perhaps in four bits.

    The adapter of a product has rank · (inputs + outputs) weights; `targets` may name only some products.
    """
    if lora is None:
        return BYTES_PER_TRAINED_WEIGHT * shape.parameters
    saved = 4 - (lora.bits or 32) / 8
    stays = 4 * shape.parameters - saved * shape.layers * shape.products
    inputs_and_outputs = 4 * 2 * shape.hidden + 2 * (shape.hidden + shape.feed_forward)
    adapters = shape.layers * lora.rank * inputs_and_outputs
    return stays + BYTES_PER_TRAINED_WEIGHT * adapters


def count_encoded_texts(stage: Stage, setting: Setting) -> tuple[float, float]:
    """Return how many texts of its side a stage encodes, and their mean number of tokens, special ones included."""
    query, passage = setting.lengths(stage.upstream["tokens"])
    if params_of(stage).side == "passages":
        return setting.passages(stage), passage + DUAL_SPECIAL
    return setting.queries(stage), query + DUAL_SPECIAL


@cost("embeddings")
def estimate_embeddings(stage: Stage, setting: Setting) -> Work:
    """Estimate encoding passages or a split's queries into vectors; int8 vectors have a scale of four bytes each."""
    shape = setting.shape(stage.upstream["tokens"])
    texts, tokens = count_encoded_texts(stage, setting)
    dimension = setting.dimension(stage)
    bytes_per_vector = {"fp32": 4 * dimension, "fp16": 2 * dimension, "int8": dimension + 4}
    of_inputs = texts * tokens * setting.input_operations(stage.upstream["tokens"])
    return Work(
        "encode",
        shape.forward(texts, tokens) + of_inputs,
        width=shape.hidden,
        rows=(("encoded", texts * tokens),),
        memory=PROCESS_BYTES + 4 * shape.parameters,
        disk=texts * bytes_per_vector[params_of(stage).dtype],
    )


def count_rows(stage: Stage, setting: Setting) -> float:
    """Return an upper bound on the rows that a stage stores for the texts that it encodes."""
    texts, tokens = count_encoded_texts(stage, setting)
    side = "query" if params_of(stage).side == "queries" else "passage"
    return texts * float(params_of(stage.upstream["model"]).representation.count_rows(side, tokens))


def count_head_operations(model: Stage, shape: EncoderShape) -> float:
    """Return the operations per token of the wide layer above a model's encoder; 0 if there is none."""
    return 2.0 * shape.hidden * float(params_of(model).representation.head(shape.vocabulary))


def count_instances(stage: Stage, setting: Setting) -> int:
    """Return the visits in an epoch of a training, which are lists, positives or rows (`train.instance`).

    A query has one list per draw, or two where undenoised and denoised ones are mixed; with `one_list` it has one in
    all. Its positives are those of the dataset; if answers or a judge label, there is one; if ranks label, there are as
    many as ranks make positive. Rows are a dual encoder's single negatives and a cross-encoder's pairs.
    """
    train, objective = params_of(stage).train, params_of(stage).objective
    one_list = params_of(stage).one_list
    instance = getattr(train, "instance", "query")

    counts = []
    for role, candidates in stage.upstream.items():
        if role.split(".")[0] != "candidates":
            continue
        params, queries = params_of(candidates), setting.queries(candidates)
        visits = queries
        if instance != "query" and params.labels == "qrels":
            visits = setting.positives(candidates, params.split)
        if instance != "query" and params.positives:
            visits = queries * params.positives
        share_with_lists = min(1.0, (params.queries or UNLIMITED) / max(1, queries))
        is_mixed = params.denoise and params.denoise.hybrid and not one_list
        lists_per_query = 2 if is_mixed else 1
        counts.append(round(visits * share_with_lists) * lists_per_query)

    count = max(counts) if one_list else sum(counts)
    if instance == "row":
        count *= train.list_size - (objective == "dual")
    return count


def count_steps(
    stage: Stage, setting: Setting, operations: float, validation: float
) -> tuple[int, int]:
    """Return optimizer steps, from the training lists, and validations, if none ends the training early.

    The validation at the start is included.

    Args:
        operations: operations of one step; they use up a budget.
        validation: operations of one validation.
    """
    train, count = params_of(stage).train, count_instances(stage, setting)
    every = train.validate_every
    spreads_validations = train.choose == "dev" and not train.checkpoints and not every

    validations = USUAL_VALIDATIONS
    if train.budget_minutes:
        minutes = train.budget_minutes
        if spreads_validations:
            validations, minutes = fit_validations(minutes, validation)
        steps = fit_steps(minutes, operations, count, train.queries_per_batch)
    else:
        instance: Any = getattr(train, "instance", "query")
        visits = count_visits(count, train.queries_per_batch, train.epochs, train.steps, instance)
        steps = ceil(visits / train.queries_per_batch)

    if spreads_validations:
        every = ceil(steps / validations)
    return steps, ceil(steps / every) + 1 if every else 0


def count_validated(stage: Stage, setting: Setting) -> tuple[int, int]:
    """Return how many queries a training validates on, and how many passages each has.

    The queries are those of dev, else training queries that are set apart.
    """
    train = params_of(stage).train
    run = stage.upstream.get("validation")
    if run:
        return min(
            train.validation_queries, setting.queries(run, "dev") or UNLIMITED
        ), train.validation_depth
    candidates = stage.upstream["candidates"]
    params = params_of(candidates)
    known = min(setting.queries(candidates), params.queries or UNLIMITED)
    set_apart = max(1, known // _TRAINING_QUERIES_PER_VALIDATED)
    return min(train.validation_queries, set_apart), params.depth


@cost("checkpoint")
def estimate_checkpoint(stage: Stage, setting: Setting) -> Work:
    """Estimate one of a training's equal parts, or its start; it stores weights and the state to resume from."""
    whole = estimate_training(stage, setting)
    number, parts = params_of(stage).until
    share, steps = 0.0, 0
    if number:
        share, steps = 1 / parts, ceil((whole.steps or 0) / parts)
    return replace(
        whole,
        operations=whole.operations * share,
        updated=whole.updated * share,
        disk=4 * whole.disk,
        steps=steps,
    )


@cost("model")
def estimate_model(stage: Stage, setting: Setting) -> Work:
    """Estimate a training in one piece; a model taken from a checkpoint only links the checkpoint's files."""
    return Work() if "checkpoint.1" in stage.upstream else estimate_training(stage, setting)


def estimate_training(stage: Stage, setting: Setting) -> Work:
    """Estimate all steps and validations of a training."""
    params = params_of(stage)
    train, objective = params.train, params.objective
    queries = train.queries_per_batch
    added = count_added_passages(train, count_instances(stage, setting))
    # with live negatives a step searches stored vectors and encodes no passage
    vectors = stage.upstream.get("passages")
    list_size = 0 if vectors else train.visit_size + added
    dev_queries, dev_depth = count_validated(stage, setting)
    operations, validation, weights, activations, updated = 0.0, 0.0, 0.0, 0.0, 0.0
    of_inputs, of_dev_inputs = 0.0, 0.0  # not counted by a budget
    memory: float = PROCESS_BYTES + setting.held
    learns_vocabulary = not (params.lora or train.freeze_layers)

    if objective != "cross":
        tokens = stage.upstream["tokens"]
        shape, lengths = setting.shape(tokens), setting.lengths(tokens)
        query, passage = lengths
        encoders = params.representation.count_encoders()
        separate_weights = 2 if getattr(params, "shared", None) is False else encoders
        tokens_per_step = queries * (query + DUAL_SPECIAL + list_size * (passage + DUAL_SPECIAL))
        fits = tokens_per_step <= setting.execution.graph_tokens or objective == "joint"
        passes: float = FORWARD_AND_BACKWARD if fits else _CACHED_FORWARD_AND_BACKWARD
        head = count_head_operations(stage, shape) / encoders  # only one of them has a head

        forward = encoders * _count_encoding(shape, queries, list_size, lengths, head)
        tokens_read = tokens_per_step
        if getattr(train, "self_teaching", None):  # each query has a broken copy
            forward += encoders * shape.forward(queries, query + DUAL_SPECIAL)
            tokens_read += queries * (query + DUAL_SPECIAL)
        operations += forward * (passes - _count_spared_passes(shape, params))
        validation += encoders * _count_encoding(shape, dev_queries, dev_depth, lengths, head)
        of_token = encoders * setting.input_operations(tokens)
        of_inputs = passes * tokens_read * of_token
        dev_tokens = query + DUAL_SPECIAL + dev_depth * (passage + DUAL_SPECIAL)
        of_dev_inputs = dev_queries * dev_tokens * of_token
        weights += separate_weights * shape.parameters
        memory += separate_weights * measure_learning_weights(shape, params.lora)
        activations += encoders * measure_activations(shape, tokens_per_step, setting, passage)
        if learns_vocabulary:
            updated += encoders * count_updated_numbers(shape, tokens_per_step, setting)

    if objective != "dual":
        tokens = stage.upstream.get("cross_tokens", stage.upstream["tokens"])
        shape, length = setting.shape(tokens), setting.pair_length(tokens)
        is_frozen = getattr(train, "teacher", None) == "static"
        passes = 1 if is_frozen else FORWARD_AND_BACKWARD - _count_spared_passes(shape, params)

        texts = count_texts_each(stage, tokens, setting)
        readings, dev_readings = list_size * texts, dev_depth * texts  # per list
        if getattr(params, "compares", False):  # two passages at a time, in both orders
            length += setting.lengths(tokens)[1] + 1
            readings = 2 * train.positives * (list_size - train.positives)
            dev_readings = dev_depth * (dev_depth - 1)
        operations += shape.forward(queries * readings, length) * passes
        validation += shape.forward(dev_queries * dev_readings, length)
        weights += shape.parameters
        # a static teacher gets no adapters
        memory += measure_learning_weights(shape, None if is_frozen else params.lora)
        if not is_frozen:
            activations += measure_activations(shape, queries * readings * length, setting, length)
            if learns_vocabulary:
                updated += count_updated_numbers(shape, queries * readings * length, setting)

    memory += activations + measure_mapped_tokens(tokens, setting)

    teacher_tokens = stage.upstream.get("in_batch_tokens")
    if teacher_tokens:  # a frozen teacher's forward pass
        shape = setting.shape(teacher_tokens)
        operations += _count_encoding(shape, queries, list_size, setting.lengths(teacher_tokens))
        memory += 4 * shape.parameters
    if vectors:
        # a product of each number
        operations += 2 * queries * setting.passages(vectors) * setting.dimension(vectors)

    steps, validations = count_steps(stage, setting, operations, validation)
    operations = (operations + of_inputs) * steps + (validation + of_dev_inputs) * validations
    return Work(
        objective,
        operations,
        width=shape.hidden,
        updated=updated * steps,
        memory=memory,
        disk=4 * weights,
        steps=steps,
    )


def count_updated_numbers(shape: EncoderShape, tokens: float, setting: Setting) -> float:
    """Return the numbers of a vocabulary's vectors that a step of `tokens` tokens fills, adds or updates."""
    micro_batches = ceil(tokens / setting.execution.micro_tokens)
    times = _UPDATES_PER_MICRO_BATCH * micro_batches + _UPDATES_PER_STEP
    return float(times * shape.vocabulary * shape.hidden)


def _count_encoding(
    shape: EncoderShape,
    queries: int,
    list_size: int,
    lengths: tuple[float, float],
    head: float = 0.0,
) -> float:
    """Return the operations of encoding queries and their lists once.

    Args:
        lengths: mean tokens of a query and of a passage, without special tokens.
        head: operations per token above the encoder.
    """
    query, passage = lengths[0] + DUAL_SPECIAL, lengths[1] + DUAL_SPECIAL
    above = head * queries * (query + list_size * passage)
    return shape.forward(queries, query) + shape.forward(queries * list_size, passage) + above


def _count_spared_passes(shape: EncoderShape, params: Any) -> float:
    """Return how much less a backward pass costs, in forward passes, because weights are frozen.

    It ends above the frozen layers. It passes through layers with adapters, without the gradient of the layers' own
    weights.
    """
    if params.lora:
        return 1.0
    frozen: int = params.train.freeze_layers
    return (FORWARD_AND_BACKWARD - 1) * min(1.0, frozen / max(1, shape.layers))


def measure_activations(
    shape: EncoderShape, tokens: float, setting: Setting, length: float
) -> float:
    """Return the bytes of activations of texts of a length; at most `graph_tokens` tokens are held at once."""
    return shape.activations(
        min(tokens, setting.execution.graph_tokens), length, setting.activation_bytes
    )
