"""What a step costs, by which a budget of minutes is spent: from the data and the encoder, as no clock is read."""

import numpy as np
from torch import nn

from tandem.config.training import Train
from tandem.models.tokens import Tokens
from tandem.training.lists import Lists

OPERATIONS = 6  # per weight and token: 2 of a forward pass, 4 of a backward pass


def operations_per_step(models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train) -> float:
    """Operations of a step over lists of mean size and texts of mean length; what attention adds is left out."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra
    size = float(np.minimum(train.list_size, 1 + np.diff(lists.offsets) - lists.positives).mean())
    of_list = {"dual": size * (passage + single) + query + single, "cross": size * (passage + query + pair)}
    weights = {part: layer_weights(model) for part, model in models.items()}
    return OPERATIONS * train.queries_per_batch * sum(weights[part] * of_list[part] for part in weights)


def layer_weights(model: nn.Module) -> int:
    """Weights of the one encoder that a text goes through, without its embeddings, which only look rows up."""
    towers = getattr(model, "towers", None)
    encoder = towers["passage"] if towers is not None else model
    return sum(weight.numel() for name, weight in encoder.named_parameters() if "embeddings" not in name)
