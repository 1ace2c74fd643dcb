"""Cost functions of what computes with models: encoding texts, training and pre-training, in how many steps."""

from dataclasses import replace
from math import ceil

from tandem.extras.estimate.resources import DUAL_SPECIAL, MIB, PROCESS, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import EVERY, mapped_tokens
from tandem.plan.graph import Stage
from tandem.plan.sizes import EncoderShape
from tandem.training.instances import count_visits
from tandem.training.lists import USUAL_VALIDATIONS, fit_steps, fit_validations

ACTIVE_TERMS, QUERY_TERMS = 130, 30  # with a weight, of a passage and of a query: those of SPLADE's papers, about
TRAINED = 16  # bytes a weight in training: itself, its gradient, two moments, float32 each
BACKWARD = 3  # forward and backward together cost three forward passes
SET_APART = 10  # one of so many training queries is validated on where there is no dev (training/validation.py)
CACHED = 4  # … and one more where gradients are cached


def encoded_texts(stage: Stage, setting: Setting) -> tuple[float, float]:
    """How many texts of its side a stage encodes, and the mean tokens of one, special ones included."""
    query, passage = setting.lengths(stage.upstream["tokens"])
    if params_of(stage).side == "passages":
        return setting.passages(stage), passage + DUAL_SPECIAL
    return setting.queries(stage), query + DUAL_SPECIAL


@cost("embeddings")
def embeddings(stage: Stage, setting: Setting) -> Work:
    """Encoding passages or a split's queries into vectors; one of int8 has a scale of four bytes."""
    shape, (texts, tokens) = setting.shape(stage.upstream["tokens"]), encoded_texts(stage, setting)
    dimension = setting.dimension(stage)
    each = {"fp32": 4 * dimension, "fp16": 2 * dimension, "int8": dimension + 4}[params_of(stage).dtype]
    memory, rows = PROCESS + 4 * shape.parameters, (("encoded", texts * tokens),)
    return Work("encode", shape.forward(texts, tokens), rows, memory=memory, disk=texts * each)


def token_rows(stage: Stage, setting: Setting) -> float:
    """Tokens with a vector of a `token_vectors` stage; punctuation, which has none, is counted."""
    texts, tokens = encoded_texts(stage, setting)
    side = "query" if params_of(stage).side == "queries" else "passage"
    return texts * float(params_of(stage.upstream["model"]).representation.vectors(side, tokens))


@cost("token_vectors")
def token_vectors(stage: Stage, setting: Setting) -> Work:
    """Encoding passages or a split's queries into a vector a token, of two bytes a number."""
    shape, (texts, tokens) = setting.shape(stage.upstream["tokens"]), encoded_texts(stage, setting)
    rows, memory = token_rows(stage, setting), PROCESS + 4 * shape.parameters + 8 * texts
    operations = shape.forward(texts, max(tokens, rows / max(1, texts)))
    return Work("encode", operations, memory=memory, disk=2 * rows * setting.dimension(stage))


def logits(model: Stage, shape: EncoderShape) -> float:
    """Operations per token of the wide layer above a model's encoder; 0 without one."""
    return 2.0 * shape.hidden * float(params_of(model).representation.head(shape.vocabulary))


def active_terms(stage: Stage, setting: Setting) -> float:
    """Weights of a text of a `term_weights` stage: as many as its model allows, else as SPLADE's papers have."""
    usual = ACTIVE_TERMS if params_of(stage).side == "passages" else QUERY_TERMS
    _, tokens = encoded_texts(stage, setting)
    return float(params_of(stage.upstream["model"]).representation.active_terms(tokens) or usual)


@cost("term_weights")
def term_weights(stage: Stage, setting: Setting) -> Work:
    """Encoding as for vectors, and each token's logits over the vocabulary; a few weights of six bytes are stored."""
    shape, (texts, tokens) = setting.shape(stage.upstream["tokens"]), encoded_texts(stage, setting)
    model = params_of(stage.upstream["model"]).representation
    operations = model.encoders * shape.forward(texts, tokens) + texts * tokens * logits(stage.upstream["model"], shape)
    disk = 6 * texts * active_terms(stage, setting)
    return Work("encode", operations, memory=PROCESS + 4 * shape.parameters + 1024 * MIB, disk=disk)


def instances_of(stage: Stage, setting: Setting) -> int:
    """The number of visits in an epoch of a training, which are lists, positives or rows (`train.instance`).

    A query has one list, or two where undenoised and denoised ones are mixed. Its positives are those of the dataset;
    where answers or a judge label, one. Rows are a dual encoder's single negatives and a cross-encoder's pairs.
    """
    train, objective = params_of(stage).train, params_of(stage).objective
    count = 0
    kind = getattr(train, "instance", "query")
    for drawn in (above for role, above in stage.upstream.items() if role.split(".")[0] == "candidates"):
        params, queries = params_of(drawn), setting.queries(drawn)
        of_dataset = kind != "query" and params.labels == "qrels"
        each = setting.positives(drawn, params.split) if of_dataset else queries
        share = min(1.0, (params.queries or EVERY) / max(1, queries))  # of the queries that lists are drawn for
        count += round(each * share) * (2 if params.denoise and params.denoise.hybrid else 1)
    if kind == "row":
        count *= train.list_size - (objective == "dual")
    return count


def steps_of(stage: Stage, setting: Setting, operations: float, validation: float) -> tuple[int, int]:
    """Optimizer steps, from the training lists, and validations, the start's included, if none ends the training early.

    Args:
        operations: of one step, by which a budget is spent.
        validation: operations of one validation.
    """
    train, count = params_of(stage).train, instances_of(stage, setting)
    per_batch, minutes, validations = train.queries_per_batch, train.budget_minutes, USUAL_VALIDATIONS
    chosen, every = train.choose == "dev" and not train.checkpoints, train.validate_every
    if minutes:
        if chosen and not every:
            validations, minutes = fit_validations(minutes, validation)
        steps = fit_steps(minutes, operations, count, per_batch)
    else:
        visits = count_visits(count, per_batch, train.epochs, train.steps, getattr(train, "instance", "query"))
        steps = ceil(visits / per_batch)
    if chosen and not every:
        every = ceil(steps / validations)
    return steps, ceil(steps / every) + 1 if every else 0


def validated(stage: Stage, setting: Setting) -> tuple[int, int]:
    """How many queries a training validates on, and passages of each: of dev, else training queries set apart."""
    train = params_of(stage).train
    if run := stage.upstream.get("validation"):
        return min(train.validation_queries, setting.queries(run, "dev") or EVERY), train.validation_depth
    drawn = stage.upstream["candidates"]
    params = params_of(drawn)
    known = min(setting.queries(drawn), params.queries or EVERY)
    return min(train.validation_queries, max(1, known // SET_APART)), params.depth


@cost("checkpoint")
def checkpoint(stage: Stage, setting: Setting) -> Work:
    """One of the equal parts of a training, or its start, with the state to resume from beside its weights."""
    whole, (number, parts) = _training(stage, setting), params_of(stage).until
    share, steps = (1 / parts, ceil((whole.steps or 0) / parts)) if number else (0.0, 0)
    return replace(whole, operations=whole.operations * share, disk=4 * whole.disk, steps=steps)


@cost("model")
def model(stage: Stage, setting: Setting) -> Work:
    """A training in one piece; the model of a checkpoint only links its files."""
    return Work() if "checkpoint.1" in stage.upstream else _training(stage, setting)


def _training(stage: Stage, setting: Setting) -> Work:
    params = params_of(stage)
    train, objective = params.train, params.objective
    live = stage.upstream.get("passages")  # live negatives: a step searches the passages' vectors and encodes none
    queries, size = train.queries_per_batch, 0 if live else train.visit_size
    operations, validation, weights, activations = 0.0, 0.0, 0.0, 0.0
    dev_queries, depth = validated(stage, setting)
    if objective != "cross":
        read = stage.upstream["tokens"]
        shape, (query, passage) = setting.shape(read), setting.lengths(read)
        readers = params.representation.encoders
        towers = 2 if getattr(params, "shared", None) is False else readers
        tokens = queries * (query + DUAL_SPECIAL + size * (passage + DUAL_SPECIAL))
        whole = tokens <= setting.execution.graph_tokens or objective == "joint"
        head = logits(stage, shape) / readers  # one of them has it
        once = readers * _encoded(shape, queries, size, (query, passage), head)
        operations += once * ((BACKWARD if whole else CACHED) - _spared(shape, train.freeze_layers))
        validation += readers * _encoded(shape, dev_queries, depth, (query, passage), head)
        weights += towers * shape.parameters
        activations += readers * _activations(shape, tokens, setting, passage)
    if objective != "dual":
        read = stage.upstream.get("cross_tokens", stage.upstream["tokens"])
        shape, length = setting.shape(read), setting.pair_length(read)
        static = getattr(train, "teacher", None) == "static"
        operations += shape.forward(queries * size, length) * (
            1 if static else BACKWARD - _spared(shape, train.freeze_layers)
        )
        validation += shape.forward(dev_queries * depth, length)
        weights += shape.parameters
        activations += 0.0 if static else _activations(shape, queries * size * length, setting, length)
    memory = PROCESS + setting.held + TRAINED * weights + activations + mapped_tokens(read, setting)
    if by_teacher := stage.upstream.get("in_batch_tokens"):  # a frozen teacher's forward pass
        shape = setting.shape(by_teacher)
        operations += _encoded(shape, queries, size, setting.lengths(by_teacher))
        memory += 4 * shape.parameters
    if live:
        operations += 2 * queries * setting.passages(live) * setting.dimension(live)  # a product of each number
    steps, validations = steps_of(stage, setting, operations, validation)
    operations = operations * steps + validation * validations
    return Work(objective, operations, memory=memory, disk=4 * weights, steps=steps)


def _encoded(shape: EncoderShape, queries: int, size: int, lengths: tuple[float, float], head: float = 0.0) -> float:
    """Encoding queries and their lists of `size` passages once, of texts as long on average as `lengths`.

    `head`: operations a token above the encoder.
    """
    query, passage = (length + DUAL_SPECIAL for length in lengths)
    above = head * queries * (query + size * passage)
    return shape.forward(queries, query) + shape.forward(queries * size, passage) + above


def _spared(shape: EncoderShape, frozen: int) -> float:
    """The forward passes that a backward pass costs less where so many layers are frozen."""
    return (BACKWARD - 1) * min(1.0, frozen / shape.layers) if frozen else 0.0


_HEAD_LAYERS = {"mlm": 0, "retromae": 1, "dup_mae": 1, "cocondenser": 2, "condenser": 2}
_ALL_TOKENS = ("retromae", "tsdae", "dup_mae", "lex_mae")  # objectives that look at logits of every token
_LOGIT_BYTES = 3 * 4  # of a term of a token: the logit, its logarithm and its gradient, float32


@cost("pretrain")
def pretrain(stage: Stage, setting: Setting) -> Work:
    """Pre-training: the passages of a step forward and backward, under the head of the objective.

    Crops are two spans, each of the mean of `crop_shortest` and `crop_longest` of the passage; of the inverse cloze
    task one is the passage. Hidden tokens, of some objectives all tokens, pass a projection to the vocabulary; heads
    and decoders add layers.
    """
    params, read = params_of(stage), stage.upstream["tokens"]
    train, objective = params.train, params.objective
    shape, (_, passage) = setting.shape(stage), setting.lengths(read)
    count = train.passages_per_batch
    steps = train.steps or ceil(train.epochs * setting.size(read).passages / count)
    span = (train.crop_shortest + train.crop_longest) / 2 if hasattr(train, "crop_longest") else 1.0
    if objective in ("crop", "cot_mae"):
        passage *= span
        count *= 2
    elif objective == "ict":
        count *= 1 + span  # its own tokens, as a part of the passage's
    length = passage + DUAL_SPECIAL
    operations = shape.forward(count, length)
    if objective not in ("crop", "ict"):
        head = replace(shape, layers=_HEAD_LAYERS.get(objective, getattr(train, "decoder_layers", 2)))
        hidden = count * passage * (1.0 if objective in _ALL_TOKENS else train.mask_probability)
        operations += head.forward(count, length) + 2 * hidden * shape.hidden * shape.vocabulary
    memory = PROCESS + setting.held + TRAINED * shape.parameters + _activations(shape, count * length, setting, length)
    if objective in _ALL_TOKENS:
        memory += _LOGIT_BYTES * min(count * length, setting.execution.micro_tokens) * shape.vocabulary
    return Work("dual", BACKWARD * operations * steps, memory=memory, disk=4 * shape.parameters)


def _activations(shape: EncoderShape, tokens: float, setting: Setting, length: float) -> float:
    return shape.activations(min(tokens, setting.execution.graph_tokens), length, setting.activation_bytes)
