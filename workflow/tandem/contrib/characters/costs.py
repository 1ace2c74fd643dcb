"""What an input of characters costs to make."""

from dataclasses import replace

from tandem.extras.estimate.model_costs import FORWARD_AND_BACKWARD
from tandem.extras.estimate.resources import PROCESS_BYTES, Setting, Work, cost, params_of
from tandem.extras.estimate.stage_costs import estimate_tokens
from tandem.plan.graph import Stage

_CHARACTERS_OF_WORD = 10  # of a usual word, with its begin and its end


@cost("character_encoder")
def estimate_imitation(stage: Stage, setting: Setting) -> Work:
    """Estimate the steps by which the input learns: filters at each character, highway layers, and a linear layer."""
    params, shape = params_of(stage), setting.shape(stage)
    size = sum(number for _, number in params.filters)
    of_filters = sum(width * number for width, number in params.filters) * params.character_size
    weights = params.highway_layers * 2 * size**2 + size * shape.hidden
    of_word = 2 * (_CHARACTERS_OF_WORD * of_filters + weights)
    words = params.imitation.steps * params.imitation.words_per_batch
    disk = 4 * (shape.parameters + weights + of_filters)
    return Work("dual", FORWARD_AND_BACKWARD * of_word * words, memory=PROCESS_BYTES, disk=disk)


@cost("word_tokens")
def estimate_word_tokens(stage: Stage, setting: Setting) -> Work:
    """Estimate splitting the corpus and all queries into words, whose ids have four bytes."""
    usual = estimate_tokens(stage, setting)
    return replace(usual, disk=2 * usual.disk)
