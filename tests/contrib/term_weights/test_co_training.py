"""SpaDE's objective: which lists each encoder learns from, and both losses from the encoders' own vectors."""

import numpy as np
import pytest
import torch
from pytest import approx
from tiny_training import spade, train_params, weigh

from tandem.contrib.term_weights.options import SpadeTerms
from tandem.contrib.term_weights.term_objectives import CoTraining
from tandem.models.learning import set_dropout
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch, Positives

# Every passage has a token of its query, and all are of one length, so that their vectors stand in a grid.
QUERIES = [[5, 6], [7, 8], [9, 10], [11, 12]]
PASSAGES = [
    [5, 20, 21],
    [6, 22, 23],
    [7, 24, 25],
    [8, 26, 27],
    [9, 28, 29],
    [10, 30, 31],
    [11, 32, 33],
    [12, 34, 35],
]
LISTS = Batch(np.arange(4), np.arange(8).reshape(4, 2))
ALL = Ragged.of([np.array(row) for row in PASSAGES])
TEMPLATE = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0)


def objective(**train):
    """Co-training by lists alone, where every token has a weight and stands for the whole vocabulary."""
    model = spade()
    weigh(model, 2, torch.float32)
    set_dropout(model, 0.0)
    torch.nn.init.constant_(model.layers("passage")[0].linear.bias, 2.0)
    model.options = SpadeTerms(terms=200)
    tokens = Tokens(ALL, Ragged.of([np.array(row) for row in QUERIES]), TEMPLATE)
    params = train_params("spade", in_batch=False, **train)
    return CoTraining(model, tokens, params, Positives(np.arange(4), np.arange(0, 8, 2)), Budget())


def scores(pair, part):
    """s(q, p) of the four lists by one part, shape (4, 2), and the passages' vectors, shape (4, 2, vocabulary)."""
    vectors = pair.model.alone(part).encode("passage", ALL, TEMPLATE, "fp32").view(4, 2, -1)
    return torch.stack(
        [vectors[row][:, query].sum(1) for row, query in enumerate(QUERIES)]
    ), vectors


def losses(pair, part):
    """-log softmax of the positive within each list, shape (4,)."""
    return -scores(pair, part)[0].log_softmax(1)[:, 0]


def test_without_co_training_both_learn_from_all_lists():
    pair = objective()
    values = pair.backward(LISTS, Seeds((1, 2)))
    assert values["weights"] == approx(losses(pair, "weights").mean().item())
    likely = scores(pair, "expansion")[1][:, 0].log_softmax(1)
    # of the query's terms
    term_losses = torch.stack([-likely[row, query].sum() for row, query in enumerate(QUERIES)])
    assert values["sup"] == approx(losses(pair, "expansion").mean().item())
    assert values["query_terms"] == approx(term_losses.mean().item())
    assert values["loss"] == approx(values["weights"] + values["sup"] + values["query_terms"])


def test_each_encoder_learns_from_what_the_other_knows_least():
    pair = objective(co_training=0.25)
    hard = int(losses(pair, "expansion").argmax())
    assert len(losses(pair, "expansion").unique()) == len(losses(pair, "weights").unique()) == 4
    values = pair.backward(LISTS, Seeds((1, 2)))
    assert values["weights"] == approx(losses(pair, "weights")[hard].item())
    assert pair.hardest(pair.weights, LISTS).queries.tolist() == [
        int(losses(pair, "weights").argmax())
    ]
    assert pair.models.training


def test_each_loss_reaches_its_own_encoder_alone():
    pair = objective()
    for learner, tower in ((pair.weights, "passage"), (pair.expansion, "expansion")):
        pair.models.zero_grad()
        learner.backward(LISTS, Seeds((1, 2)))
        reached = {
            name.split(".")[2] for name, p in pair.models.named_parameters() if p.grad is not None
        }
        assert reached == {tower}


@pytest.mark.parametrize(("share", "count"), [(0.5, 2), (0.1, 1), (1.0, 4)])
def test_a_share_of_the_lists_is_learned_and_at_least_one(share, count):
    pair = objective(co_training=share)
    expected = losses(pair, "expansion").topk(count).indices.sort().values.tolist()
    assert pair.hardest(pair.expansion, LISTS).queries.tolist() == expected
