"""Momentum contrast: the queue and the key encoder by hand, and the loss written out passage by passage."""

import copy

import numpy as np
import torch
from pretrain_cases import ROWS, objective
from pytest import approx
from test_pretrain_losses import STEP
from tiny_training import texts

from tandem.contrib.pretraining.moco import join_weights
from tandem.training.forward import Seeds
from tandem.training.lists import Batch

NEXT = Seeds((1, 3))


def make_pretraining(**train):
    """An objective without dropout."""
    pretraining = objective("moco", **train)
    pretraining.models.eval()
    return pretraining


def take_step(pretraining, rows=ROWS, seeds=STEP):
    """The loss of a step over some passages."""
    return pretraining.backward(Batch(rows, rows[:, None]), seeds)["loss"]


def encode_spans(model, pretraining, seeds, rows=ROWS):
    """Vectors of both spans of some passages, by an encoder."""
    spans = pretraining.pair(texts().passages.take(rows), seeds)
    with torch.no_grad():
        return [model.encode("passage", part, texts().template, "fp32") for part in spans]


def write_out(queries, keys, negatives):
    """The mean over the passages of the loss, whose negatives are a list of vectors each; temperature 2."""
    losses = []
    for query, key, others in zip(queries, keys, negatives, strict=True):
        scores = torch.stack([query @ key, *(query @ other for other in others)]) / 2.0
        losses.append(float(-scores.log_softmax(0)[0]))
    return np.mean(losses)


def test_the_first_step_compares_with_random_vectors_of_length_1():
    pretraining = make_pretraining()
    random = pretraining.queue.vectors.double().clone()
    assert torch.allclose(random.norm(dim=1), torch.ones(20, dtype=torch.float64))
    loss = take_step(pretraining)
    queries, keys = encode_spans(pretraining.model, pretraining, STEP)
    assert loss == approx(write_out(queries, keys, [random] * len(ROWS)), rel=1e-9)


def test_the_second_step_compares_with_the_first_ones_passages_but_not_with_itself():
    pretraining = make_pretraining(queue=len(ROWS), momentum=0.75)
    take_step(pretraining)
    first = copy.deepcopy(pretraining.model)
    _, earlier = encode_spans(first, pretraining, STEP)
    assert torch.allclose(pretraining.queue.vectors.double(), earlier, atol=1e-6)

    before = join_weights(first)
    with torch.no_grad():
        for weight in pretraining.model.parameters():
            weight += 0.01 * torch.randn(weight.shape, dtype=weight.dtype)
    now = join_weights(pretraining.model)
    rows = np.array([3, 5])  # passage 3 stands twice in the first batch
    loss = take_step(pretraining, rows, NEXT)

    assert torch.equal(join_weights(pretraining.model), now)
    assert torch.allclose(pretraining.queue.weights, 0.75 * before + 0.25 * now)
    follower = copy.deepcopy(first)
    torch.nn.utils.vector_to_parameters(0.75 * before + 0.25 * now, follower.parameters())
    queries, _ = encode_spans(pretraining.model, pretraining, NEXT, rows)
    _, keys = encode_spans(follower, pretraining, NEXT, rows)
    others = [[v for row, v in zip(ROWS, earlier, strict=True) if row != own] for own in rows]
    assert list(map(len, others)) == [5, 7]
    assert loss == approx(write_out(queries, keys, others), rel=1e-6)


def test_the_oldest_vectors_make_room():
    queue = make_pretraining(queue=5).queue
    dim = queue.vectors.shape[1]

    def push(*passages):
        rows = torch.tensor(passages)
        queue.push(rows[:, None].expand(-1, dim).float(), rows)
        assert torch.equal(
            queue.vectors[:, 0][queue.passages >= 0].long(), queue.passages[queue.passages >= 0]
        )
        return queue.passages.tolist()

    assert push(1, 2, 3) == [1, 2, 3, -1, -1]
    assert push(4, 5, 6) == [6, 2, 3, 4, 5]
    assert sorted(push(7, 8, 9, 10, 11, 12)) == [8, 9, 10, 11, 12]


def test_keys_get_no_gradient():
    """The gradient is that of the queries' spans alone."""
    pretraining = make_pretraining()
    random = pretraining.queue.vectors.double().clone()
    take_step(pretraining)
    gradients = {
        path: p.grad.clone()
        for path, p in pretraining.model.named_parameters()
        if p.grad is not None
    }
    pretraining.model.zero_grad()

    spans, template = pretraining.pair(texts().passages.take(ROWS), STEP), texts().template
    queries = pretraining.model.encode("query", spans[0], template, "fp32")
    keys = pretraining.model.encode("passage", spans[1], template, "fp32").detach()
    scores = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ random.T], 1) / 2.0
    (-scores.log_softmax(1)[:, 0].mean()).backward()
    for path, parameter in pretraining.model.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(gradients[path], parameter.grad, atol=1e-9)
