"""The objective of models that compare passages, by hand."""

import math
from dataclasses import replace

import numpy as np
import torch
from pytest import approx
from tiny_training import BATCH, objective

from tandem.config.training import OWN_OBJECTIVES
from tandem.contrib.comparisons.compare_passages import join_passages
from tandem.contrib.comparisons.pair_objective import Comparisons
from tandem.training.forward import Seeds

SEEDS = Seeds((1, 2))


def of_pair(learner, query, first, second):
    """s(q, p_i, p_j) of one pair, by the model itself."""
    tokens = learner.tokens
    joined = join_passages(
        tokens.passages.take(np.array([first])),
        tokens.passages.take(np.array([second])),
        learner.model.separator(tokens.template),
    )
    queries = tokens.queries.take(np.array([query]))
    return learner.model(queries, joined, tokens.template, "fp32").item()


def test_pairs_are_of_a_positive_and_a_negative_in_both_orders():
    # the positive of each list stands first; list 2 has two passages, the others four
    pairs = Comparisons.of_labels(BATCH)
    assert pairs.lists.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3] * 2
    assert pairs.first.tolist() == [0] * 10 + [1, 2, 3, 1, 2, 3, 1, 1, 2, 3]
    assert pairs.second.tolist() == [1, 2, 3, 1, 2, 3, 1, 1, 2, 3] + [0] * 10
    two = Comparisons.of_labels(replace(BATCH, positives=np.array([2, 1, 1, 1])))
    assert list(zip(two.lists[:4].tolist(), two.first[:4], two.second[:4], strict=True)) == [
        (0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3)
    ]  # fmt: skip
    assert len(Comparisons.of_all(BATCH).lists) == 3 * 12 + 2


def test_the_loss_is_duoberts_averaged_over_a_lists_pairs():
    learner = objective("duo_bert", loss="pointwise", dtype=torch.float64)
    expected = 0.0
    for query, row in zip(BATCH.queries, BATCH.passages, strict=True):
        passages = row[row >= 0]
        terms = []
        for negative in passages[1:]:
            terms.append(math.log1p(math.exp(-of_pair(learner, query, passages[0], negative))))
            terms.append(math.log1p(math.exp(of_pair(learner, query, negative, passages[0]))))
        expected += sum(terms) / len(terms) / len(BATCH.queries)
    assert learner.backward(BATCH, SEEDS)["loss"] == approx(expected, rel=1e-9)


def test_equal_scores_have_the_loss_that_counts_as_chance():
    learner = objective("duo_bert", loss="pointwise", dtype=torch.float64)
    for parameter in learner.models.parameters():
        parameter.data.zero_()
    assert learner.backward(BATCH, SEEDS)["loss"] == approx(OWN_OBJECTIVES["compares"].chance)


def test_validation_ranks_by_the_sum_of_preferences():
    learner = objective("duo_t5", loss="pointwise", dtype=torch.float64)
    learner.models.eval()
    sums = learner.scores(BATCH, np.array([], np.int64))["cross"]
    assert sums.shape == BATCH.passages.shape
    expected = sum(
        1
        / (
            1
            + math.exp(
                -of_pair(learner, BATCH.queries[0], BATCH.passages[0, 1], BATCH.passages[0, j])
            )
        )
        for j in (0, 2, 3)
    )
    assert sums[0, 1].item() == approx(expected, rel=1e-9)
    assert sums[2, 2:].tolist() == [0.0, 0.0]
