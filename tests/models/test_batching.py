"""Token batches: every row once, within the budget, similar lengths together."""

from itertools import combinations

import numpy as np
import pytest

from tandem.models.encoding import fill_length
from tandem.models.ragged import OVERHEAD, make_micro_batches, split_by_tokens
from tandem.training.forward import MULTIPLE


def test_batches_by_hand():
    # sorted: 2 2 3 5 9; 3 rows of 3 are 9 <= 10, adding the 5 would be 20; 5 and 9 would be 18; 9 stands alone
    batches = split_by_tokens(np.array([5, 2, 9, 3, 2]), 10)
    assert [batch.tolist() for batch in batches] == [[1, 4, 3], [0], [2]]


def test_a_row_longer_than_the_budget_stands_alone():
    assert [batch.tolist() for batch in split_by_tokens(np.array([40, 1, 50]), 10)] == [
        [1],
        [0],
        [2],
    ]


def test_no_rows_make_no_batch():
    assert split_by_tokens(np.empty(0, np.int64), 10) == []


def test_budget_and_completeness_on_many_rows():
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    batches = split_by_tokens(lengths, 4096)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    padded = [len(batch) * lengths[batch].max() for batch in batches]
    assert max(padded) <= 4096
    # little is lost to padding, and few batches are small
    assert lengths.sum() > 0.95 * sum(padded)
    assert sum(padded) > 0.9 * 4096 * len(batches)


def test_packed_batches_are_cut_by_the_sum_of_their_lengths():
    # sorted: 2, 2, 3, 5, 9; 2 + 2 + 3 fits 10, another 5 does not; 5 + 9 does not
    batches = split_by_tokens(np.array([5, 2, 9, 3, 2]), 10, packed=True)
    assert [batch.tolist() for batch in batches] == [[1, 4, 3], [0], [2]]
    assert [
        batch.tolist() for batch in make_micro_batches(np.array([5, 2, 9, 3, 2]), 99, 8, packed=10)
    ] == [[1, 4, 3], [0], [2]]
    assert [
        batch.tolist() for batch in split_by_tokens(np.array([5, 2, 9, 3, 2]), 12, packed=True)
    ] == [[1, 4, 3, 0], [2]]


def test_rows_without_tokens_are_a_batch():
    assert [batch.tolist() for batch in make_micro_batches(np.array([0, 9, 0]), 64, 4, None)] == [
        [0, 2, 1]
    ]
    assert [batch.tolist() for batch in make_micro_batches(np.array([0, 0]), 64, 4, None)] == [
        [0, 1]
    ]
    assert [batch.tolist() for batch in split_by_tokens(np.array([0, 0]), 64)] == [[0, 1]]


def test_micro_batches_of_the_least_cost():
    lengths = np.random.default_rng(3).permutation(np.arange(5, 160, 14))[:11]
    ordered = np.sort(lengths)

    def cost(cuts: tuple[int, ...]) -> int:
        """Tokens and overheads of rows cut at these places; no batch may go beyond the budget."""
        parts = np.split(ordered, cuts)
        sizes = [len(part) * int(part[-1]) for part in parts]
        return sum(sizes) + OVERHEAD * len(parts) if max(sizes) <= 500 else 10**9

    every = [cuts for size in range(11) for cuts in combinations(range(1, 11), size)]
    chosen = np.cumsum([len(rows) for rows in make_micro_batches(lengths, 500, 1, None)])[:-1]
    assert cost(tuple(chosen)) == min(cost(cuts) for cuts in every)


def test_smaller_micro_batches_where_they_save_more_than_they_cost():
    # one batch of 20 rows of 100 computes 2,000 tokens; one for each length 1,500, for one more OVERHEAD
    lengths = np.array([50] * 10 + [100] * 10)
    assert [len(batch) for batch in make_micro_batches(lengths, 2000, 1, None)] == [10, 10]
    # 20 rows of 100 instead of 98 are 20 tokens: less than another batch
    assert [len(batch) for batch in make_micro_batches(lengths // 50 + 98, 2000, 1, None)] == [20]
    assert 20 < OVERHEAD < 500
    # lengths count as padded: 17 rows of 9, padded to 12, are more than 200 tokens
    assert sum(len(batch) for batch in make_micro_batches(np.full(17, 9), 200, 4, None)) == 17
    assert (
        max(len(batch) for batch in make_micro_batches(np.full(17, 9), 200, 4, None)) <= 200 // 12
    )


def lognormal(rng, mean, deviation, shortest, longest, shape):
    """Lengths with this mean and deviation before they are cut."""
    variance = np.log(1 + (deviation / mean) ** 2)
    drawn = rng.lognormal(np.log(mean) - variance / 2, variance**0.5, shape)
    return np.clip(np.rint(drawn), shortest, longest).astype(np.int64)


@pytest.fixture(scope="module")
def msmarco():
    """`msmarco(queries, size)`: lengths of a step's queries and of its lists' passages, without special tokens."""

    def make(queries, size):
        rng = np.random.default_rng(queries)
        return lognormal(rng, 8, 3.5, 2, 32, queries), lognormal(
            rng, 75, 30, 8, 128, (queries, size)
        )

    return make


def padding(lengths, budget):
    """Tokens computed and tokens asked for."""
    computed = 0
    for batch in make_micro_batches(lengths, budget, MULTIPLE, None):
        computed += len(batch) * -(-int(lengths[batch].max()) // MULTIPLE) * MULTIPLE
    return computed, int(lengths.sum())


@pytest.mark.parametrize("queries", [8, 96])
@pytest.mark.parametrize("budget", [2048, 4096, 8192, 16384])
def test_padding_of_a_step_of_lists_of_128_is_below_a_twentieth(msmarco, queries, budget):
    query_lengths, passages = msmarco(queries, 128)
    pairs = padding((query_lengths[:, None] + passages + 3).ravel(), budget)
    texts = np.add(padding(query_lengths + 2, budget), padding(passages.ravel() + 2, budget))
    for computed, needed in (pairs, texts):
        assert needed >= 0.95 * computed


@pytest.mark.parametrize("budget", [2048, 16384])
def test_packed_rows_are_nearly_full(msmarco, budget):
    query_lengths, passages = msmarco(96, 128)
    lengths = (query_lengths[:, None] + passages + 3).ravel()
    rows = [
        fill_length(int(lengths[batch].sum()), budget)
        for batch in make_micro_batches(lengths, 0, 1, budget)
    ]
    assert max(rows) == budget
    assert lengths.sum() >= 0.95 * sum(rows)
