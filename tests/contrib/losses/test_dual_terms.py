"""PAIR's passage-centric loss and the regularisers of a dual encoder's vectors, by hand and in parts."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from pytest import approx

from tandem.config.losses import Regularise
from tandem.contrib.losses.vector_terms import compare_queries, sum_regularisers
from tandem.errors import UserError
from tandem.models.dual import dot_scores
from tandem.training.forward import Budget
from tandem.training.lists import Batch
from tandem.training.objectives.dual import InBatch

LN2, LN3 = math.log(2), math.log(3)
BIG, SMALL = Budget(1 << 20, 1 << 20), Budget(micro_tokens=40, graph_tokens=60)
WEIGHTS = {"query": {"flops": 0.5, "l1": 0.0}, "passage": {"flops": 0.25, "l1": 2.0}, "ramp": 4}
REGULARISE = Regularise(**WEIGHTS)
BATCH = Batch(np.array([0, 1]), np.array([[4, 5], [6, 7]]))
FULL = {"passage_centric": 0.3, "regularise": WEIGHTS, "in_batch": True}


def seen(
    queries, passages, crossed=None, batch=BATCH, step=0, gather=lambda rows: rows, every=None
):
    """What `BatchDualObjective` hands over for vectors of one dimension, two passages a list.

    `crossed`: which of all passages are a query's negatives.
    """
    q, p = (
        torch.tensor(rows, dtype=torch.float64)[:, None].requires_grad_()
        for rows in (queries, passages)
    )
    own = q * p.reshape(len(queries), 2)
    scores, mask = own, torch.ones(len(queries), 2, dtype=torch.bool)
    if crossed is not None:
        scores, mask = (
            torch.cat([own, q @ p.T], 1),
            torch.cat([mask, torch.tensor(crossed, dtype=torch.bool)], 1),
        )
    score = partial(dot_scores, temperature=1.0)
    return InBatch(q, p if every is None else every, scores, mask, batch, p, score, step, gather)


def test_passage_centric_over_lists_by_hand():
    # first: s(p+,q) = ln 2 · 1, s(p+,p-) = ln 2 · 0: 2/(2 + 1); second: s(p+,q) = 0, s(p+,p-) = ln 3 · 1: 1/(1 + 3)
    loss = compare_queries(seen([1.0, 0.0], [LN2, 0.0, LN3, 1.0]))
    assert loss.item() == approx(math.log(3 / 2) + math.log(4))


def test_passage_centric_in_batch_by_hand():
    # passages 1, 0 | ln 3, ln 2; the first query's positive meets the second list too: 2/(2 + 1 + 3 + 2);
    # the second's, ln 3, meets passage 0 (e^0) but not passage 1, which is a known positive: s(p+,q) = ln 3 · 0
    vectors = [LN2, 0.0], [1.0, 0.0, LN3, LN2]
    loss = compare_queries(seen(*vectors, crossed=[[0, 0, 1, 1], [0, 1, 0, 0]]))
    second = 1 / (1 + math.exp(LN3 * LN2) + 1)
    assert loss.item() == approx(math.log(8 / 2) - math.log(second))


def test_passage_centric_pushes_negatives_from_the_positive_and_pulls_its_query():
    in_batch = seen([1.0, 0.5], [LN2, 0.3, LN3, 1.0])
    query, passages = torch.autograd.grad(
        compare_queries(in_batch), (in_batch.queries, in_batch.own_passages)
    )
    assert (query < 0).all()
    assert (passages[[1, 3]] > 0).all()


def test_passage_centric_is_blended_with_the_lesson(make_objective, gradients, batch):
    alone, alone_grads = gradients(make_objective("dual", BIG, torch.float64, in_batch=True), batch)
    values, grads = gradients(
        make_objective("dual", BIG, torch.float64, in_batch=True, passage_centric=0.3), batch
    )
    assert values["sup"] == approx(0.7 * alone["loss"])
    assert values["loss"] == approx(values["sup"] + values["passage"])
    name = next(iter(grads))
    assert not torch.allclose(grads[name], alone_grads[name])


def test_passage_centric_equals_a_plain_softmax(make_objective, gradients, batch):
    objective = make_objective("dual", BIG, torch.float64, in_batch=True, passage_centric=1.0)
    values, _ = gradients(objective, batch)
    flat, known = batch.passages[batch.mask], {0: {2}, 1: {5}, 2: {8}, 3: {11, 5}}
    queries, passages = vectors(objective, batch)
    owner, losses = np.argwhere(batch.mask)[:, 0], []
    for q in range(4):
        first = int(np.flatnonzero(owner == q)[0])
        others = [
            j
            for j in range(len(flat))
            if j != first and (owner[j] == q or int(flat[j]) not in known[q])
        ]
        good = passages[first] @ queries[q]
        losses.append(
            torch.logsumexp(torch.stack([good, *(passages[others] @ passages[first])]), 0) - good
        )
    assert values["passage"] == approx(float(torch.stack(losses).mean()), rel=1e-10)


def vectors(objective, batch):
    """Vectors of the batch's queries and passages, without gradient."""
    from tandem.training.forward import Seeds, TextVectors

    sides = TextVectors(objective.model, objective.tokens, "fp32", BIG).encode_batch(
        batch, Seeds((1, 2))
    )
    return (side.values().detach() for side in sides)


def test_regularisers_of_a_batch_by_hand():
    # queries 1 and -3: flops 2² = 4; passages 1, 0, 2, 1: flops 1² = 1, l1 1; step 1 of 4: (2/4)²; two queries
    in_batch = seen([1.0, -3.0], [1.0, 0.0, 2.0, 1.0], step=1)
    assert sum_regularisers(REGULARISE, in_batch).item() == approx(
        (0.5 * 4 + 0.25 * 1 + 2.0 * 1) / 4 * 2
    )
    assert sum_regularisers(
        Regularise(**WEIGHTS | {"query": None, "ramp": 0}), in_batch
    ).item() == approx(2.25 * 2)


def test_a_regulariser_split_over_processes_is_the_one_of_the_whole():
    queries, passages = [1.0, -3.0, 0.5], [1.0, 0.0, 2.0, 1.0, 0.2, 0.4]
    q, p = (
        torch.tensor(rows, dtype=torch.float64)[:, None].requires_grad_()
        for rows in (queries, passages)
    )
    whole = Batch(np.arange(3), np.arange(6).reshape(3, 2))
    parts = []
    for start, stop in ((0, 2), (2, 3), (3, 3)):
        own = seen(queries[start:stop], passages[2 * start : 2 * stop], batch=whole.select(slice(start, stop)), every=p,
                   gather=lambda rows: q)  # fmt: skip
        parts.append(sum_regularisers(REGULARISE, own) / 3)
    at_once = sum_regularisers(REGULARISE, seen(queries, passages, batch=whole)) / 3
    assert sum(parts).item() == approx(at_once.item())
    assert torch.autograd.grad(sum(parts), q)[0].tolist()[1] == approx(
        [0.5 * 2 * 1.5 * -1 / 3 / 16]
    )


def test_the_objective_regularises_its_vectors(make_objective, gradients, batch):
    objective = make_objective("dual", BIG, torch.float64, regularise=WEIGHTS)
    values, _ = gradients(objective, batch)
    queries, passages = (side.abs() for side in vectors(objective, batch))
    flops = [side.mean(0).square().sum() for side in (queries, passages)]
    # the fixture's seeds say that two steps are done
    expected = (0.5 * flops[0] + 0.25 * flops[1] + 2.0 * passages.sum(1).mean()) * (3 / 4) ** 2
    assert values["regularise"] == approx(expected.item(), rel=1e-9)
    assert values["loss"] == approx(values["sup"] + values["regularise"])


@pytest.mark.parametrize(
    "train", [FULL, FULL | {"in_batch": False, "shared": True}], ids=["in batch", "lists"]
)
def test_parts_equal_one_big_batch(make_objective, gradients, batch, train):
    big_values, big = gradients(make_objective("dual", BIG, torch.float64, **train), batch)
    values, parts = gradients(make_objective("dual", SMALL, torch.float64, **train), batch)
    assert values == approx(big_values, rel=1e-10)
    for key, gradient in big.items():
        torch.testing.assert_close(parts[key], gradient, rtol=1e-10, atol=1e-10)


def test_matryoshka_is_the_sum_of_the_losses_of_whole_and_of_cut_vectors(
    make_objective, gradients, batch
):
    options = {"in_batch": True, "passage_centric": 0.3}
    expected, sums = 0.0, {}
    for dim in (None, 8, 3):
        objective = make_objective("dual", BIG, torch.float64, **options)
        objective.model.normalize, objective.model.dim = True, dim
        values, grads = gradients(objective, batch)
        expected += sum(values.values())
        sums = {name: sums.get(name, 0) + gradient for name, gradient in grads.items()}
    for budget in (BIG, SMALL):
        objective = make_objective("dual", budget, torch.float64, **options, matryoshka=[8, 3])
        objective.model.normalize = True
        values, grads = gradients(objective, batch)
        assert sum(values.values()) == approx(expected)
        for name, gradient in grads.items():
            assert torch.allclose(gradient, sums[name], atol=1e-10), name


def test_matryoshka_of_whole_vectors_is_refused(make_objective):
    with pytest.raises(
        UserError, match="train.matryoshka is 32, but vectors have 32 numbers: name fewer"
    ):
        make_objective("dual", BIG, torch.float64, matryoshka=[32])
