"""How many operations the steps of a training take, by which budgets are counted.

What they cost is decided by the data and the encoder: no clock is read, and no machine asked.
"""

from typing import Any

from torch import Tensor, nn

from tandem.config.training import Train
from tandem.models.tokens import Tokens
from tandem.training.lists import Lists, count_visited

# Operations per weight and token.
FORWARD_OPERATIONS = 2
_BACKWARD_OPERATIONS = 4
_STEP_OPERATIONS = FORWARD_OPERATIONS + _BACKWARD_OPERATIONS


def count_step_operations(
    models: nn.ModuleDict, tokens: Tokens, lists: Lists, train: Train
) -> float:
    """Return the operations of a step over lists of mean size and texts of mean length, without attention's."""
    passage = float(tokens.passages.lengths(lists.passages).mean())
    query = float(tokens.queries.lengths(lists.queries).mean())
    single, pair = tokens.template.extra  # special tokens
    positives, negatives = count_visited(lists, train.visit_size, train.positives)
    size = float((positives + negatives).mean())
    tokens_of_list = {
        "dual": size * (passage + single) + query + single,
        "cross": size * (passage + query + pair - _average_cut(tokens, lists)),
    }
    operations = 0.0
    for part, model in models.items():
        weights: float = count_layer_weights(model)
        if train.freeze_layers:  # they are spared the backward pass
            frozen = count_layer_weights(model, frozen=True)
            weights -= _BACKWARD_OPERATIONS / _STEP_OPERATIONS * frozen
        operations += weights * tokens_of_list[part]
    return _STEP_OPERATIONS * train.queries_per_batch * operations


def _average_cut(tokens: Tokens, lists: Lists) -> float:
    """Return the tokens that a pair loses to the template's `longest_pair`, on average."""
    if tokens.template.longest_pair is None:
        return 0.0
    query_rows, passage_rows = lists.pair_rows(0, len(lists.passages))
    queries = tokens.queries.lengths(query_rows)
    passages = tokens.passages.lengths(passage_rows)
    uncut = queries + passages + tokens.template.extra[1]
    return float((uncut - tokens.template.pair_lengths(queries, passages)).mean())


def count_layer_weights(model: nn.Module, frozen: bool = False) -> int:
    """Return the weights of the encoders that a passage goes through, or with `frozen` those that do not learn.

    Embeddings do not count: they only look rows up. Weights that several layers share (ALBERT) count for each of them.
    """
    towers = getattr(model, "towers", {"passage": model})
    total = 0
    for side, encoder in towers.items():
        if side == "query":
            continue
        tables = {
            id(module.weight) for module in encoder.modules() if isinstance(module, nn.Embedding)
        }
        for name, weights in encoder.named_parameters():
            if "embeddings" in name or id(weights) in tables:
                continue
            if frozen and weights.requires_grad:
                continue
            total += _count_numbers(weights) * _count_uses(encoder, name)
    return total


def _count_numbers(weights: Tensor) -> int:
    """Return the numbers of a layer's weights; of 4 bits each, two are stored in a byte."""
    quantised = getattr(weights, "quant_state", None)
    return int(quantised.shape.numel()) if quantised is not None else weights.numel()


def _count_uses(encoder: Any, name: str) -> int:
    """Return how many of an encoder's layers have the weights of a name."""
    if "albert_layer_groups" not in name:
        return 1
    config = encoder.config
    return int(config.num_hidden_layers // config.num_hidden_groups)
