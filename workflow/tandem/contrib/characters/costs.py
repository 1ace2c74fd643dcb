"""Estimate what it costs to train an input of characters, and to use it."""

from dataclasses import replace

from tandem.extras.estimate.model_costs import FORWARD_AND_BACKWARD
from tandem.extras.estimate.resources import (
    PROCESS_BYTES,
    Setting,
    Work,
    cost,
    input_cost,
    params_of,
)
from tandem.extras.estimate.stage_costs import estimate_tokens
from tandem.plan.graph import Stage

_CHARACTERS_OF_WORD = 10  # of a typical word, with the marks of its begin and its end


@cost("character_encoder")
def estimate_imitation(stage: Stage, setting: Setting) -> Work:
    """Estimate the training steps of the input."""
    params, shape = params_of(stage), setting.shape(stage)
    words = params.imitation.steps * params.imitation.words_per_batch
    operations = FORWARD_AND_BACKWARD * count_word_operations(stage, shape.hidden) * words
    disk = 4 * (shape.parameters + sum(_count_weights(stage, shape.hidden)))
    return Work("dual", operations, memory=PROCESS_BYTES, disk=disk)


@input_cost("character_encoder")
def count_word_operations(encoder: Stage, hidden: int) -> float:
    """Return the operations of a word's vector: filters at each character, highway layers, and a linear layer."""
    of_filters, above = _count_weights(encoder, hidden)
    return 2.0 * (_CHARACTERS_OF_WORD * of_filters + above)


def _count_weights(encoder: Stage, hidden: int) -> tuple[int, int]:
    """Return the number of weights of the filters, and of the layers above them."""
    params = params_of(encoder)
    size = sum(number for _, number in params.filters)
    of_filters = sum(width * number for width, number in params.filters) * params.character_size
    return of_filters, params.highway_layers * 2 * size**2 + size * hidden


@cost("word_tokens")
def estimate_word_tokens(stage: Stage, setting: Setting) -> Work:
    """Estimate splitting the corpus and all queries into words, whose ids have four bytes."""
    usual = estimate_tokens(stage, setting)
    return replace(usual, disk=2 * usual.disk)
