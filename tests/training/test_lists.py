from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.errors import UserError
from tandem.training.lists import batches, draw, read_lists, visits_in


def write(path, rows):
    names = ["query_row", "passage_row", "label", "list"]
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path)


@pytest.fixture
def lists(tmp_path):
    """Query 7 has an undenoised list of one positive and a denoised one of two; query 9 has one list."""
    rows = [(7, 1, 1, "undenoised"), (7, 2, 0, "undenoised"), (7, 3, 0, "undenoised")]
    rows += [(7, 1, 1, "denoised"), (7, 4, 1, "denoised"), (7, 2, 0, "denoised")]
    rows += [(9, 5, 1, "undenoised"), (9, 6, 0, "undenoised"), (9, 7, 0, "undenoised"), (9, 8, 0, "undenoised")]
    write(tmp_path / "c.parquet", rows)
    return read_lists(tmp_path / "c.parquet")


def test_lists_are_told_apart_by_query_and_kind(lists):
    assert lists.queries.tolist() == [7, 7, 9]
    assert lists.offsets.tolist() == [0, 3, 6, 10]
    assert lists.positives.tolist() == [1, 2, 1]


def test_a_visit_draws_one_positive_and_pads_short_lists(lists):
    assert sorted(draw(lists, 0, 4, seed=1, epoch=0)[1:].tolist()) == [-1, 2, 3]
    visits = [draw(lists, 1, 2, seed=1, epoch=epoch).tolist() for epoch in range(40)]
    assert {tuple(v) for v in visits} == {(1, 2), (4, 2)}
    drawn = Counter(int(draw(lists, 2, 2, seed=1, epoch=epoch)[1]) for epoch in range(60))
    assert set(drawn) == {6, 7, 8}
    assert min(drawn.values()) > 8


def test_an_epoch_visits_every_list_once_and_the_last_batch_is_uneven(lists):
    made = list(batches(lists, per_batch=2, size=3, seed=3, visits=visits_in(3, 2, 1.0, None)))
    assert [len(b.queries) for b in made] == [2, 1]
    assert sorted(int(q) for b in made for q in b.queries) == [7, 7, 9]


def test_steps_are_full_batches_across_epochs(lists):
    made = list(batches(lists, per_batch=2, size=3, seed=3, visits=visits_in(3, 2, 1.0, 3)))
    assert [len(b.queries) for b in made] == [2, 2, 2]
    assert Counter(int(q) for b in made for q in b.queries) == {7: 4, 9: 2}


def test_starting_in_the_middle_gives_the_same_batches(lists):
    whole = list(batches(lists, 2, 3, 5, 12))
    rest = list(batches(lists, 2, 3, 5, 12, first=4))
    for a, b in zip(whole[4:], rest, strict=True):
        np.testing.assert_array_equal(a.passages, b.passages)
        np.testing.assert_array_equal(a.queries, b.queries)


def test_another_seed_gives_another_order(lists):
    orders = {tuple(int(q) for b in batches(lists, 1, 2, seed, 9) for q in b.queries) for seed in range(6)}
    assert len(orders) > 1


def test_no_list_is_a_mistake(tmp_path):
    columns = {"query_row": [], "passage_row": [], "label": [], "list": pa.array([], pa.string())}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    with pytest.raises(UserError, match="holds no training list"):
        read_lists(tmp_path / "c.parquet")
