"""The objective of models that compare passages, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytest import approx
from tiny_training import BATCH, objective

from tandem.config.training import OWN_OBJECTIVES
from tandem.contrib.comparisons.compare_passages import join_passages
from tandem.contrib.comparisons.pair_objective import Comparisons, ComparisonScores
from tandem.models.ragged import Ragged
from tandem.models.tokens import Tokens
from tandem.training.forward import Budget, Seeds
from tandem.training.lists import Batch

SEEDS = Seeds((1, 2))
BIG = Budget(micro_tokens=1 << 20, graph_tokens=1 << 20)


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


def test_of_two_passages_that_are_too_long_the_longer_loses_its_end_first():
    first = Ragged.of([np.arange(10, 18), np.arange(10, 13)])
    second = Ragged.of([np.arange(20, 26), np.arange(20, 29)])
    joined = join_passages(first, second, [0], np.array([9, 9]))
    assert [row.tolist() for row in joined] == [
        [10, 11, 12, 13, 0, 20, 21, 22, 23],
        [10, 11, 12, 0, 20, 21, 22, 23, 24],
    ]


@pytest.mark.parametrize("name", ["duo_bert", "duo_t5"])
def test_where_pairs_are_cut_the_second_passage_is_read(name):
    learner = objective(name, loss="pointwise", dtype=torch.float64)
    template = replace(learner.tokens.template, longest_pair=24)
    passages = Ragged.of([np.full(25, row) for row in (81, 82, 83)])
    queries = Ragged.of([np.array([90, 91, 92])])
    tokens = Tokens(passages, queries, template)
    pairs = Comparisons(np.array([0, 0]), np.array([0, 0]), np.array([1, 2]))
    batch = Batch(np.array([0]), np.array([[0, 1, 2]]))
    compared = ComparisonScores(learner.model, tokens, "fp32", BIG).compare(batch, pairs, SEEDS)
    with torch.no_grad():
        scores = compared.values()
    assert scores[0] != scores[1]
    assert {*compared.lengths.tolist()} == {template.longest_pair}
