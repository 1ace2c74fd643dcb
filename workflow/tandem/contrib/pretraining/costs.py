"""Estimate what pre-training costs."""

from dataclasses import replace
from math import ceil
from typing import Any

from tandem.contrib.pretraining.options import (
    CoCondenserTrain,
    CotMaeTrain,
    CropTrain,
    IctTrain,
    ShortHead,
)
from tandem.extras.estimate.model_costs import (
    BYTES_PER_TRAINED_WEIGHT,
    FORWARD_AND_BACKWARD,
    count_updated_numbers,
    measure_activations,
)
from tandem.extras.estimate.resources import (
    DUAL_SPECIAL,
    PROCESS_BYTES,
    Setting,
    Work,
    cost,
    params_of,
)
from tandem.plan.graph import Stage

_HEAD_LAYERS = {"mlm": 0, "retromae": 1, "dup_mae": 1}  # of objectives that have no key for them
_USUAL_HEAD_LAYERS = 2
# objectives that compute the logits of every token
_ALL_TOKENS = ("retromae", "tsdae", "dup_mae", "lex_mae")
_BYTES_PER_LOGIT = 3 * 4  # the logit of a term of a token, its logarithm and its gradient, float32
# times that a number of a logit is written or read: these three numbers, each also in the precision of products
_UPDATES_PER_LOGIT = 6


@cost("pretrain")
def estimate_pretrain(stage: Stage, setting: Setting) -> Work:
    """Estimate pre-training: the passages of a step forward and backward, with the head of the objective.

    Objectives of spans encode two spans of each passage, whose average share of it is the mean of `crop_shortest` and
    `crop_longest`. The inverse cloze task encodes a span and the passage. Predicted tokens are projected to the
    vocabulary; heads and decoders add layers.
    """
    params, tokens = params_of(stage), stage.upstream["tokens"]
    train, objective = params.train, params.objective
    shape = setting.shape(stage)
    _, passage = setting.lengths(tokens)
    count: float = train.passages_per_batch
    steps = train.steps or ceil(train.epochs * setting.size(tokens).passages / count)

    span = (train.crop_shortest + train.crop_longest) / 2 if hasattr(train, "crop_longest") else 1.0
    if isinstance(train, CropTrain | CotMaeTrain | CoCondenserTrain):
        passage *= span
        count *= 2
    elif objective == "ict":
        count *= 1 + span  # the passage, and the span as a fraction of a passage
    length = passage + DUAL_SPECIAL

    operations, logits = shape.forward(count, length), 0.0
    if not isinstance(train, CropTrain | IctTrain):
        if objective == "tsdae":  # the decoder is the encoder once more
            layers = shape.layers
        elif isinstance(train, ShortHead):
            layers = train.head_layers
        else:
            usual = _HEAD_LAYERS.get(objective, _USUAL_HEAD_LAYERS)
            layers = getattr(train, "decoder_layers", usual)
        head = replace(shape, layers=layers)
        logits = count * passage * _count_predictions(train, objective) * shape.vocabulary
        operations += head.forward(count, length) + 2 * logits * shape.hidden

    memory: float = PROCESS_BYTES + setting.held + BYTES_PER_TRAINED_WEIGHT * shape.parameters
    memory += measure_activations(shape, count * length, setting, length)
    if objective in _ALL_TOKENS:
        memory += (
            _BYTES_PER_LOGIT
            * min(count * length, setting.execution.micro_tokens)
            * shape.vocabulary
        )
    updated = count_updated_numbers(shape, count * length, setting) + _UPDATES_PER_LOGIT * logits
    return Work(
        "dual",
        FORWARD_AND_BACKWARD * operations * steps,
        width=shape.hidden,
        updated=updated * steps,
        memory=memory,
        disk=4 * shape.parameters,
    )


def _count_predictions(train: Any, objective: str) -> float:
    """Return how often a token is predicted on average: by the encoder if hidden, and by a further head or decoder."""
    if objective == "tsdae":  # the encoder predicts none
        return 1.0
    hidden: float = train.mask_probability
    if objective == "mlm":
        return hidden
    return hidden + (1.0 if objective in _ALL_TOKENS else hidden)
