"""Token batches: every row once, within the budget, similar lengths together."""

import numpy as np

from tandem.models.batching import token_batches


def test_batches_by_hand():
    # sorted: 2 2 3 5 9; 3 rows of 3 are 9 <= 10, adding the 5 would be 20; 5 and 9 would be 18; 9 stands alone
    batches = token_batches(np.array([5, 2, 9, 3, 2]), 10)
    assert [batch.tolist() for batch in batches] == [[1, 4, 3], [0], [2]]


def test_a_row_longer_than_the_budget_stands_alone():
    assert [batch.tolist() for batch in token_batches(np.array([40, 1, 50]), 10)] == [[1], [0], [2]]


def test_no_rows_make_no_batch():
    assert token_batches(np.empty(0, np.int64), 10) == []


def test_budget_and_completeness_on_many_rows():
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    batches = token_batches(lengths, 4096)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    padded = [len(batch) * lengths[batch].max() for batch in batches]
    assert max(padded) <= 4096
    # little is lost to padding, and few batches are small
    assert lengths.sum() > 0.95 * sum(padded)
    assert sum(padded) > 0.9 * 4096 * len(batches)
