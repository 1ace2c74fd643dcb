"""How many operations the steps of a training take; budgets are counted in them.

The data and the encoder decide the cost of a step: neither a clock nor the machine's speed counts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn

from tandem.config.training import Train
from tandem.extras.training_budgets import count_added_passages
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.training.lists import Lists

# Operations per weight and token.
FORWARD_OPERATIONS = 2
_GRADIENT_OPERATIONS = 2  # of the weight itself
_PASSING_OPERATIONS = 2  # of the gradient that is passed down


def count_step_operations(
    models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train
) -> float:
    """Return the operations of a step over lists of mean size and texts of mean length, without those of attention."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra  # special tokens
    positives, negatives = count_visited(lists, train.visit_size, train.positives)
    size = float((positives + negatives).mean()) + count_added_passages(train, len(lists))
    tokens_of_list = {
        "dual": size * (passage + single) + query + single,
        "cross": size * (passage + query + pair - _average_cut(tokens, lists)),
    }
    operations = sum(
        count_learning_operations(model) * tokens_of_list[part] for part, model in models.items()
    )
    return train.queries_per_batch * operations


def count_visited(lists: Lists, size: int, most: int) -> tuple[Ids, Ids]:
    """Return how many positives and how many negatives a visit of each list has, shape (lists,) each."""
    positives = np.minimum(most, lists.positives)
    available = np.diff(lists.offsets) - lists.positives
    return positives, np.minimum(size - positives, available)


def _average_cut(tokens: Tokens, lists: Lists) -> float:
    """Return the mean number of tokens that a pair loses to the template's `longest_pair`.

    Where documents are read by their windows, it is less by the queries that are read with the further windows.
    """
    texts = tokens.passages.count_texts(lists.passages)
    if tokens.template.longest_pair is None and (texts == 1).all():
        return 0.0
    query_rows, passage_rows = lists.pair_rows(0, len(lists.passages))
    queries = tokens.queries.lengths(query_rows)
    passages = tokens.passages.lengths(passage_rows)
    uncut = queries + passages + tokens.template.extra[1]
    return float((uncut - tokens.template.pair_lengths(queries, passages, texts)).mean())


def count_learning_operations(model: nn.Module) -> int:
    """Return the operations of a step per token of a passage: forward, and backward as far as that pass goes.

    Frozen weights have no gradient of their own. The gradient passes through frozen weights above or next to weights
    that learn, and ends above the rest.
    """
    total = 0
    for encoder in _list_passage_encoders(model):
        learns_below = False
        for weights, count in _iter_layer_weights(encoder):
            operations = FORWARD_OPERATIONS
            if weights.requires_grad:
                learns_below = True
                operations += _GRADIENT_OPERATIONS
            if learns_below:
                operations += _PASSING_OPERATIONS
            total += operations * count
    return total


def count_layer_weights(model: nn.Module) -> int:
    """Return the number of the encoders' weights that a passage goes through.

    Embeddings do not count: they only look rows up. Weights that several layers share (ALBERT) count for each of them.
    """
    total = 0
    for encoder in _list_passage_encoders(model):
        total += sum(count for _, count in _iter_layer_weights(encoder))
    return total


def _list_passage_encoders(model: nn.Module) -> list[nn.Module]:
    towers = getattr(model, "towers", {"passage": model})
    return [encoder for side, encoder in towers.items() if side != "query"]


def _iter_layer_weights(encoder: nn.Module) -> Iterator[tuple[Tensor, int]]:
    """Yield the weights of an encoder's layers from the lowest on, and how many they count as."""
    tables = {id(module.weight) for module in encoder.modules() if isinstance(module, nn.Embedding)}
    for name, weights in encoder.named_parameters():
        if "embeddings" in name or id(weights) in tables:
            continue
        yield weights, _count_numbers(weights) * _count_uses(encoder, name)


def _count_numbers(weights: Tensor) -> int:
    """Return the count of a layer's weights; of weights in 4 bits, a byte stores two."""
    quantised = getattr(weights, "quant_state", None)
    return int(quantised.shape.numel()) if quantised is not None else weights.numel()


def _count_uses(encoder: Any, name: str) -> int:
    """Return how many of an encoder's layers share the weights of a name."""
    if "albert_layer_groups" not in name:
        return 1
    config = encoder.config
    return int(config.num_hidden_layers // config.num_hidden_groups)
