"""What a training has to do: steps, tokens per step, operations, memory."""

from dataclasses import replace
from math import ceil

from tandem.estimating.shape import Shape
from tandem.estimating.work import PROCESS, TRAINED, Setting, Work
from tandem.plan.graph import Stage

BACKWARD = 3  # forward and backward together cost three forward passes
CACHED = 4  # … and one more where gradients are cached
DUAL_SPECIAL, PAIR_SPECIAL = 2, 3


def lists_of(stage: Stage, about: Setting) -> float:
    """Training lists: one a query, two where undenoised and denoised ones are mixed; of all that are joined."""
    return sum(_drawn(one, about) for role, one in stage.upstream.items() if role.split(".")[0] == "candidates")


def _drawn(candidates: Stage, about: Setting) -> float:
    """Lists of one stage `candidates`."""
    drawn, splits = candidates.values, about.sizes(candidates.upstream["dataset"]).queries
    queries = splits.get(drawn["split"], 0)
    queries = min(queries, drawn.get("queries") or queries)
    return queries * (2 if (drawn.get("denoise") or {}).get("hybrid") else 1)


def steps_of(stage: Stage, about: Setting) -> int:
    """Optimizer steps."""
    train = stage.values["train"]
    return int(train["steps"] or max(1, ceil(train["epochs"] * lists_of(stage, about) / train["queries_per_batch"])))


def checkpoint(stage: Stage, about: Setting) -> Work:
    """One of the equal parts of a training, with the state that the next one goes on from beside its weights."""
    whole = _training(stage, about)
    return replace(whole, operations=whole.operations / stage.values["until"][1], disk=4 * whole.disk)


def model(stage: Stage, about: Setting) -> Work:
    """A training in one piece; what takes a checkpoint over only links files."""
    return Work() if "checkpoint.1" in stage.upstream else _training(stage, about)


def _training(stage: Stage, about: Setting) -> Work:
    """Each step reads its queries and lists, forward and backward."""
    train, objective = stage.values["train"], stage.values["objective"]
    queries, size = train["queries_per_batch"], train["list_size"]
    graph, operations, weights, kept = about.execution["graph_tokens"], 0.0, 0.0, 0.0
    if objective != "cross":
        read = stage.upstream["tokens"]
        shape, (query, passage) = about.shape(read), about.lengths(read)
        towers = 1 if stage.values.get("shared", True) else 2
        tokens = queries * (query + DUAL_SPECIAL + size * (passage + DUAL_SPECIAL))
        whole = tokens <= graph or objective == "joint"
        once = shape.forward(queries, query + DUAL_SPECIAL) + shape.forward(queries * size, passage + DUAL_SPECIAL)
        operations += once * (BACKWARD if whole else CACHED)
        weights += towers * shape.parameters
        kept += _kept(shape, tokens, about, passage)
    if objective != "dual":
        read = stage.upstream.get("cross_tokens", stage.upstream["tokens"])
        shape, (query, passage) = about.shape(read), about.lengths(read)
        length = query + passage + PAIR_SPECIAL
        static = train.get("teacher") == "static"
        operations += shape.forward(queries * size, length) * (1 if static else BACKWARD)
        weights += shape.parameters
        kept += 0.0 if static else _kept(shape, queries * size * length, about, length)
    memory = PROCESS + about.held + TRAINED * weights + kept
    return Work(objective, operations * steps_of(stage, about), memory=memory, disk=4 * weights)


def pretrain(stage: Stage, about: Setting) -> Work:
    """Pre-training: the passages of a step forward and backward, under the head of the objective.

    Crops are two spans, each of the mean of `crop_shortest` and `crop_longest` of the passage. Hidden tokens pass a
    projection to the vocabulary; RetroMAE's and coCondenser's heads add one layer and two.
    """
    train, read, objective = stage.values["train"], stage.upstream["tokens"], stage.values["objective"]
    shape, (_, passage) = about.shape(stage), about.lengths(read)
    size, count = about.sizes(read.upstream["dataset"]), train["passages_per_batch"]
    steps = train["steps"] or ceil(train["epochs"] * size.passages / count)
    if objective == "crop":
        passage *= (train["crop_shortest"] + train["crop_longest"]) / 2
        count *= 2
    length = passage + DUAL_SPECIAL
    operations = shape.forward(count, length)
    if objective != "crop":
        head = replace(shape, layers={"mlm": 0, "retromae": 1, "cocondenser": 2}[objective])
        hidden = count * passage * train["mask_probability"]
        operations += head.forward(count, length) + 2 * hidden * shape.hidden * shape.vocabulary
    memory = PROCESS + about.held + TRAINED * shape.parameters + _kept(shape, count * length, about, length)
    return Work("dual", BACKWARD * operations * steps, memory=memory, disk=4 * shape.parameters)


def _kept(shape: Shape, tokens: float, about: Setting, length: float) -> float:
    """Bytes of activations of one backward pass."""
    return shape.activations(min(tokens, about.execution["graph_tokens"]), length, about.activation_bytes)
