"""Splitting a batch changes nothing; what is a negative and who learns is as the papers say."""

from functools import partial

import numpy as np
import torch
from pytest import approx

from tandem.models.dual import dot_scores
from tandem.training.forward import (
    Budget,
    CrossScores,
    Seeds,
    TextVectors,
    place_in_lists,
    score_own_lists,
)
from tandem.training.losses.listwise import listwise

BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)


def test_known_positives_in_batch_are_no_negatives(make_objective, batch):
    objective = make_objective("dual", in_batch=True)
    sides = TextVectors(objective.model, objective.tokens, "fp32", BIG).encode_batch(
        batch, Seeds((0,))
    )
    queries, passages = (side.values() for side in sides)
    _, mask = objective.score_batch(queries, passages, passages, batch, batch)
    flat = batch.passages[batch.mask]
    added = mask[:, batch.passages.shape[1] :].numpy()
    owner = np.argwhere(batch.mask)[:, 0]
    # query 3 knows passages 11 and 5 to be relevant: 5 stands in lists 0 and 1 and is not its negative there
    assert not added[3][(flat == 5)].any()
    assert added[2][(flat == 5)].all()
    # query 1's own list stands once: its passages are not counted again as in-batch negatives
    assert not added[1][owner == 1].any()


def test_in_batch_loss_equals_a_plain_softmax(make_objective, gradients, batch):
    objective = make_objective("dual", BIG, torch.float64, in_batch=True)
    values, _ = gradients(objective, batch)
    sides = TextVectors(objective.model, objective.tokens, "fp32", BIG).encode_batch(
        batch, Seeds((1, 2))
    )
    queries, passages = (side.values().detach() for side in sides)
    scores, flat = queries @ passages.T, batch.passages[batch.mask]
    owner, known = np.argwhere(batch.mask)[:, 0], {0: {2}, 1: {5}, 2: {8}, 3: {11, 5}}
    losses = []
    for q in range(4):
        first = int(np.flatnonzero(owner == q)[0])
        others = [j for j in range(len(flat)) if (owner[j] == q and j != first) or
                  (owner[j] != q and int(flat[j]) not in known[q])]  # fmt: skip
        losses.append(torch.logsumexp(scores[q, [first, *others]], 0) - scores[q, first])
    assert values["loss"] == approx(float(torch.stack(losses).mean()), rel=1e-10)


def test_joint_loss_is_its_two_parts_and_reaches_who_it_should(make_objective, gradients, batch):
    for semantics, teacher in (("paper", "dynamic"), ("reference", "dynamic"), ("paper", "static")):
        objective = make_objective(
            "joint", BIG, torch.float64, semantics=semantics, teacher=teacher
        )
        values, grads = gradients(objective, batch)
        assert values["loss"] == approx(values["kl"] + values["sup"])
        assert any(name.startswith("dual") for name in grads)
        assert any(name.startswith("cross") for name in grads) is (teacher == "dynamic")
        assert (values["sup"] == 0) is (teacher == "static")


def test_reference_trains_the_reranker_by_supervision_alone(make_objective, gradients, batch):
    joint = make_objective("joint", BIG, torch.float64, semantics="reference")
    _, grads = gradients(joint, batch)
    cross = make_objective("cross", BIG, torch.float64, loss="listwise")
    cross.models.load_state_dict(
        {k: v for k, v in joint.models.state_dict().items() if k.startswith("cross")}
    )
    mask = torch.from_numpy(batch.mask)
    pairs = CrossScores(cross.model, cross.tokens, "fp32", BIG).score_lists(batch, Seeds((9,)))
    (listwise(place_in_lists(pairs.values(), batch), mask) / 4).backward()
    for name, parameter in cross.models.named_parameters():
        torch.testing.assert_close(grads[name], parameter.grad, rtol=1e-9, atol=1e-12)


def test_in_batch_lengthens_joint_lists_by_the_others_positives(make_objective, batch):
    added = make_objective("joint", in_batch=True).positives.lengthen(batch).passages[:, 4:]
    # what stands in a list is not added again; passage 5 is a known positive of query 3
    assert added.tolist() == [[-1, -1, -1, -1], [-1, -1, 8, 11], [2, 5, -1, 11], [-1, -1, 8, -1]]


def test_list_scores_are_dot_products_over_the_temperature():
    from tandem.training.lists import Batch

    queries, passages = (
        torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
        torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 4.0]]),
    )
    batch = Batch(np.array([0, 1]), np.array([[4, 9], [6, -1]]))
    scores = score_own_lists(partial(dot_scores, temperature=0.5), queries, passages, batch)
    assert scores[0].tolist() == [6.0, 4.0]
    assert scores[1, 0].item() == 8.0
