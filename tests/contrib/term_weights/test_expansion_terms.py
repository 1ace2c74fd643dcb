"""The loss of SparTerm's gate: targets, loss and gradient by hand."""

import math

import numpy as np
import torch
from pytest import approx
from tiny_training import WORDS, gated, train_params

from tandem.contrib.term_weights.term_objectives import ExpansionTerms
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives

PASSAGES = [[5, 6, 5, 7], [8]]
QUERIES = [[5, 9], [5, 6], [8, 8]]
RELEVANT = Positives(np.array([0, 1, 2]), np.array([0, 0, 1]))
BATCH = Batch(np.array([0, 2]), np.array([[0, 1], [1, -1]]))


def test_loss_and_gradient_by_hand():
    model = gated()
    # every gate's logit is 0: a term is let through with probability 1/2
    last = model.towers["gate"].get_output_embeddings()
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0)
    passages, queries = (Ragged.of([np.array(row) for row in rows]) for rows in (PASSAGES, QUERIES))
    objective = ExpansionTerms(
        model,
        Tokens(passages, queries, template),
        train_params("gated", loss="expansion_terms"),
        RELEVANT,
        Budget(),
    )
    loss = objective.backward(BATCH, Seeds((1, 2)))["loss"]

    # Queries of the first passage ask for 5, 6 and 9, of which it has 5 and 6: it learns to add 9. It has 5, 6 and 7,
    # so that the others are all but four. The second passage has what is asked for.
    first = math.log(2) * (1 + 0.001 * (WORDS - 4))
    second = math.log(2) * 0.001 * (WORDS - 1)
    assert loss == approx((first + second) / 2)
    gradient = last.bias.grad
    assert gradient[9].item() == approx((-0.5 + 0.001 * 0.5) / 2)
    assert gradient[5].item() == approx(0.001 * 0.5 / 2)  # of the second passage alone
    assert gradient[20].item() == approx(2 * 0.001 * 0.5 / 2)
    sides = (model.towers["query"], model.towers["passage"])
    assert all(weights.grad is None for side in sides for weights in side.parameters())
