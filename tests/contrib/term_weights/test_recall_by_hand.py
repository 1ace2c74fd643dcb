"""DeepCT's regression of term recall: targets, loss and gradient by hand, and a model that learns it."""

from dataclasses import replace

import numpy as np
import torch
from pytest import approx
from tiny_training import train_params, unicoil

from tandem.contrib.term_weights.term_objectives import TermRecall
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives

PASSAGES = [[5, 6, 5, 7], [8]]
QUERIES = [[5, 9], [5, 6], [8, 8]]
RELEVANT = Positives(np.array([0, 1, 2]), np.array([0, 0, 1]))
BATCH = Batch(np.array([0, 2]), np.array([[0, 1], [1, -1]]))


def term_recall(model, relevant=RELEVANT, passages=PASSAGES, titles=None):
    """The objective over texts, those above; `titles` are how many tokens of each passage are its title."""
    template = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0, titles is not None)
    texts = [Ragged.of([np.array(row) for row in rows]) for rows in (passages, QUERIES)]
    tokens = Tokens(replace(texts[0], titles=titles and np.array(titles)), texts[1], template)
    return TermRecall(
        model, tokens, train_params("unicoil", loss="term_recall"), relevant, Budget()
    )


def test_recall_loss_and_gradient_by_hand():
    model = unicoil()
    linear = model.layers("passage")[0].linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, 0.5)
    objective = term_recall(model)
    # Both of the first passage's queries have 5, one has 6, none 7.
    assert objective.recall(0).tolist() == [1.0, 0.5, 1.0, 0.0]
    assert objective.recall(1).tolist() == [1.0]
    # Every token is 0.5: (0.25 + 0 + 0.25 + 0.25) / 4 and 0.25, halved; d/db: (2 · (-0.5 + 0 - 0.5 + 0.5) / 4 - 1) / 2
    assert objective.backward(BATCH, Seeds((1, 2)))["loss"] == approx(0.21875)
    assert linear.bias.grad.item() == approx(-0.625)
    assert model.layers("query")[0].linear.bias.grad is None


def test_the_separator_of_a_title_is_no_term():
    model = unicoil()
    torch.nn.init.zeros_(model.layers("passage")[0].linear.weight)
    torch.nn.init.constant_(model.layers("passage")[0].linear.bias, 0.5)
    objective = term_recall(model, passages=[[5, 3, 6, 5, 7], [3, 8]], titles=[1, 0])
    assert objective.backward(BATCH, Seeds((1, 2)))["loss"] == approx(0.21875)  # as above


def test_terms_of_queries_that_are_left_out_are_not_targets():
    assert term_recall(unicoil(), RELEVANT.without(np.array([1]))).recall(0).tolist() == [
        1.0,
        0.0,
        1.0,
        0.0,
    ]


def test_weights_below_0_learn_too():
    model = unicoil()
    linear = model.layers("passage")[0].linear
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, -1.0)
    term_recall(model).backward(BATCH, Seeds((1, 2)))
    assert linear.bias.grad.item() == approx((2 * (-2 - 1.5 - 2 - 1) / 4 - 4) / 2)
