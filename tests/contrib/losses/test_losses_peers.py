"""The same numbers and gradients as sentence-transformers, where it computes the same function."""

import pytest
import torch
from torch import nn

from tandem.contrib.losses.divergences import kl_t2
from tandem.contrib.losses.orderings import listmle
from tandem.contrib.losses.pairwise import (
    hinge,
    lambdarank,
    lambdarank_distillation,
    ranknet,
    ranknet_distillation,
)
from tandem.contrib.losses.regression import margin_mse
from tandem.contrib.losses.regularisers import flops
from tandem.training.losses.listwise import listwise

LN2 = torch.tensor(2.0).log().item()


class FixedScores(nn.Module):
    """A cross-encoder of sentence-transformers' interface whose scores are given, one per pair in order."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores):
        super().__init__()
        self.scores, self.seen = scores, 0

    def preprocess(self, pairs, **_):
        self.seen += len(pairs)
        return {"at": torch.arange(self.seen - len(pairs), self.seen)}

    def forward(self, tokens):
        return {"scores": self.scores[tokens["at"]]}


@pytest.fixture
def lists():
    """Scores, a teacher's and the mask of three lists."""
    generator = torch.Generator().manual_seed(4)
    mask = torch.arange(5)[None, :] < torch.tensor([5, 3, 4])[:, None]
    return *(2 * torch.randn(3, 5, generator=generator) for _ in range(2)), mask


def theirs(make, scores, labels, mask):
    """Value and gradient of one of their cross-encoders' losses, the gradient in the lists' shape."""
    flat = scores[mask].requires_grad_()
    loss = make(FixedScores(flat))
    lengths = mask.sum(1).tolist()
    value = loss(
        (["q"] * 3, [["p"] * length for length in lengths]), list(labels[mask].split(lengths))
    )
    gradient = torch.zeros_like(scores)
    gradient[mask] = torch.autograd.grad(value, flat)[0]
    return value.detach(), gradient


def ours(loss, scores, *rest):
    """Value and gradient of ours."""
    scores = scores.clone().requires_grad_()
    value = loss(scores, *rest)
    return value.detach(), torch.autograd.grad(value, scores)[0]


def same(actual, other, factor):
    """Whether value and gradient agree, the other's multiplied by a factor."""
    for mine, their in zip(actual, other, strict=True):
        torch.testing.assert_close(mine, their * factor, rtol=2e-5, atol=1e-6)


def firsts(scores):
    """Labels of which the first passage is relevant."""
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    return labels


def test_ranknet_is_their_mean_over_pairs_in_bits(lists):
    from sentence_transformers.cross_encoder.losses import RankNetLoss

    scores, teacher, _ = lists
    # they average over the batch's pairs: the same in equal lists
    full = torch.ones_like(scores, dtype=torch.bool)
    same(ours(ranknet, scores, full), theirs(RankNetLoss, scores, firsts(scores), full), 3 * LN2)
    same(
        ours(ranknet_distillation, scores, teacher, full),
        theirs(RankNetLoss, scores, teacher, full),
        3 * LN2,
    )


def test_lambdarank_is_their_mean_over_pairs_in_bits(lists):
    from sentence_transformers.cross_encoder.losses import LambdaLoss, LambdaRankScheme

    scores, teacher, mask = lists
    their = theirs(
        lambda model: LambdaLoss(model, LambdaRankScheme()), scores, firsts(scores), mask
    )
    same(ours(lambdarank, scores, mask), their, LN2 * (4 + 2 + 3))
    # grades 1/rank in the teacher's order, over all pairs of a list
    grades = 1 / (
        1 + teacher.masked_fill(~mask, -100).argsort(1, descending=True).argsort(1).float()
    )
    their = theirs(lambda model: LambdaLoss(model, LambdaRankScheme()), scores, grades, mask)
    same(ours(lambdarank_distillation, scores, teacher, mask), their, LN2 * (10 + 3 + 6))


def test_listmle_is_their_mean_over_queries(lists):
    from sentence_transformers.cross_encoder.losses import ListMLELoss

    scores, teacher, mask = lists
    their = theirs(
        lambda model: ListMLELoss(model, respect_input_order=False), scores, teacher, mask
    )
    same(ours(listmle, scores, teacher, mask), their, 3)


@pytest.fixture
def vectors():
    """Vectors of three queries and of four passages each, the positive first; a teacher's scores."""
    generator = torch.Generator().manual_seed(6)
    queries, passages = (
        torch.randn(3, 6, generator=generator),
        torch.randn(3, 4, 6, generator=generator),
    )
    return queries.requires_grad_(), passages, torch.randn(3, 4, generator=generator)


def by_vectors(loss, queries, passages, *labels):
    """Value and the queries' gradient of one of their losses over vectors."""
    value = loss.compute_loss_from_embeddings([queries, *passages.unbind(1)], *labels)
    return value.detach(), torch.autograd.grad(value, queries)[0]


def by_scores(loss, queries, passages, *teacher):
    """Value and the queries' gradient of ours."""
    scores = (passages @ queries[:, :, None])[..., 0]
    value = loss(scores, *teacher, torch.ones_like(scores, dtype=torch.bool))
    return value.detach(), torch.autograd.grad(value, queries)[0]


def test_margin_mse_is_their_mean_over_queries(vectors):
    from sentence_transformers.sentence_transformer.losses import MarginMSELoss

    queries, passages, teacher = vectors
    same(
        by_scores(margin_mse, *vectors),
        by_vectors(MarginMSELoss(None), queries, passages, teacher),
        3,
    )


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_t2_is_their_mean_over_queries(vectors, temperature):
    from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss

    queries, passages, teacher = vectors
    their = by_vectors(DistillKLDivLoss(None, temperature=temperature), queries, passages, teacher)
    same(by_scores(lambda *tensors: kl_t2(*tensors, temperature=temperature), *vectors), their, 3)


def test_hinge_is_their_triplet_loss_of_the_negative_score(vectors):
    from sentence_transformers.sentence_transformer.losses import TripletLoss

    queries, passages, _ = vectors
    loss = TripletLoss(None, distance_metric=lambda x, y: -(x * y).sum(-1), triplet_margin=2.0)
    their = by_vectors(loss, queries, passages[:, :2], None)
    same(
        by_scores(lambda *tensors: hinge(*tensors, margin=2.0), queries, passages[:, :2]), their, 3
    )


def test_listwise_over_a_whole_batch_is_their_multiple_negatives_ranking(vectors):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    queries, passages, _ = vectors
    loss = MultipleNegativesRankingLoss(None, scale=0.5, similarity_fct=lambda q, p: q @ p.T)
    every = passages.transpose(0, 1).flatten(0, 1)  # their positives, then each negative column
    order = torch.tensor([[i, *(j for j in range(12) if j != i)] for i in range(3)])
    same(
        by_scores(lambda s, m: listwise(s / 2, m), queries, every[order]),
        by_vectors(loss, queries, passages, None),
        3,
    )


def test_flops_of_vectors_without_signs_is_theirs(vectors):
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    weights = vectors[1].flatten(0, 1).relu()
    torch.testing.assert_close(
        flops(weights), FlopsLoss(None).compute_loss_from_embeddings(weights)
    )
