from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.errors import UserError
from tandem.extras.training_budgets import fit_steps
from tandem.training.instances import Instances, count_visits, draw_list, iter_batches
from tandem.training.lists import Lists, merge_lists, read_lists


def write(path, rows):
    names = ["query_row", "passage_row", "label", "list"]
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path)


@pytest.fixture
def lists(tmp_path):
    """Query 7 has an undenoised list of one positive and a denoised one of two; query 9 has one list."""
    rows = [(7, 1, 1, "undenoised"), (7, 2, 0, "undenoised"), (7, 3, 0, "undenoised")]
    rows += [(7, 1, 1, "denoised"), (7, 4, 1, "denoised"), (7, 2, 0, "denoised")]
    rows += [
        (9, 5, 1, "undenoised"),
        (9, 6, 0, "undenoised"),
        (9, 7, 0, "undenoised"),
        (9, 8, 0, "undenoised"),
    ]
    write(tmp_path / "c.parquet", rows)
    return read_lists(tmp_path / "c.parquet")


def test_lists_are_told_apart_by_query_and_kind(lists):
    assert lists.queries.tolist() == [7, 7, 9]
    assert lists.offsets.tolist() == [0, 3, 6, 10]
    assert lists.positives.tolist() == [1, 2, 1]


def test_a_visit_draws_one_positive_and_pads_short_lists(lists):
    assert sorted(draw_list(lists, 0, 4, seed=1, epoch=0).tolist()) == [-1, 0, 1, 2]
    visits = [
        lists.passages[draw_list(lists, 1, 2, seed=1, epoch=epoch)].tolist() for epoch in range(40)
    ]
    assert {tuple(v) for v in visits} == {(1, 2), (4, 2)}
    drawn = Counter(
        int(lists.passages[draw_list(lists, 2, 2, seed=1, epoch=epoch)[1]]) for epoch in range(60)
    )
    assert set(drawn) == {6, 7, 8}
    assert min(drawn.values()) > 8


def test_an_epoch_visits_every_list_once_and_the_last_batch_is_uneven(lists):
    drawn = list(
        iter_batches(Instances(lists, 3), per_batch=2, seed=3, visits=count_visits(3, 2, 1.0, None))
    )
    assert [len(b.queries) for b in drawn] == [2, 1]
    assert sorted(int(q) for b in drawn for q in b.queries) == [7, 7, 9]


def test_steps_are_full_batches_across_epochs(lists):
    drawn = list(
        iter_batches(Instances(lists, 3), per_batch=2, seed=3, visits=count_visits(3, 2, 1.0, 3))
    )
    assert [len(b.queries) for b in drawn] == [2, 2, 2]
    assert Counter(int(q) for b in drawn for q in b.queries) == {7: 4, 9: 2}


def test_starting_in_the_middle_gives_the_same_batches(lists):
    whole = list(iter_batches(Instances(lists, 3), 2, 5, 12))
    rest = list(iter_batches(Instances(lists, 3), 2, 5, 12, first=4))
    for a, b in zip(whole[4:], rest, strict=True):
        np.testing.assert_array_equal(a.passages, b.passages)
        np.testing.assert_array_equal(a.queries, b.queries)


def test_another_seed_gives_another_order(lists):
    orders = {
        tuple(int(q) for b in iter_batches(Instances(lists, 2), 1, seed, 9) for q in b.queries)
        for seed in range(6)
    }
    assert len(orders) > 1


def test_no_list_is_a_mistake(tmp_path):
    columns = {"query_row": [], "passage_row": [], "label": [], "list": pa.array([], pa.string())}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet")
    with pytest.raises(UserError, match="holds no training list"):
        read_lists(tmp_path / "c.parquet")


PINNED = [
    ([7, 9], [[4, 2, -1], [5, 7, 6]]),
    ([7, 7], [[1, 2, 3], [1, 3, 2]]),
    ([7, 9], [[4, 2, -1], [5, 6, 8]]),
]


def test_draws_are_pinned(lists):
    """Other draws would be another training under the same key."""
    draws = [
        (b.queries.tolist(), b.passages.tolist())
        for b in iter_batches(Instances(lists, 3), 2, seed=5, visits=6)
    ]
    assert draws == PINNED


@pytest.fixture
def taught(tmp_path, lists):
    """The same lists with scores: 100 times the list plus the passage; none for the third row of the first two."""
    scores = np.repeat([0, 100, 200], [3, 3, 4]) + lists.passages.astype(np.float32)
    scores[[2, 5]] = np.nan
    np.save(tmp_path / "scores.npy", scores.astype(np.float32))
    return read_lists(tmp_path / "c.parquet", tmp_path / "scores.npy")


def test_every_drawn_passage_has_its_own_score_beside_it(lists, taught):
    offsets = Counter()
    plain = list(iter_batches(Instances(lists, 4), 3, seed=5, visits=60))
    for batch, without in zip(
        iter_batches(Instances(taught, 4), 3, seed=5, visits=60), plain, strict=True
    ):
        np.testing.assert_array_equal(batch.passages, without.passages)
        assert without.teacher is None
        assert batch.teacher.dtype == np.float32
        for query, passages, scores in zip(
            batch.queries, batch.passages, batch.teacher, strict=True
        ):
            scored = np.isfinite(scores)
            assert set(passages[~scored]) <= ({-1, 2, 3} if query == 7 else {-1})
            # query 7's two lists share passages, not scores
            (offset,) = set((scores - passages)[scored])
            offsets[int(query), int(offset)] += 1
    assert offsets == {(7, 0): 20, (7, 100): 20, (9, 200): 20}


def test_a_part_of_a_batch_keeps_its_scores(taught):
    batch = next(iter_batches(Instances(taught, 4), 3, seed=5, visits=3))
    part = batch.select(slice(1, 3))
    np.testing.assert_array_equal(part.teacher, batch.teacher[1:])


def test_scores_of_other_lists_are_refused(tmp_path, lists):
    np.save(tmp_path / "scores.npy", np.zeros(9, np.float32))
    with pytest.raises(UserError, match=r"scores.npy: holds 9 scores, but .*c.parquet has 10 rows"):
        read_lists(tmp_path / "c.parquet", tmp_path / "scores.npy")


def test_rows_know_their_query_whatever_the_group(lists):
    whole = lists.pair_rows(0, 10)
    assert whole[0].tolist() == [7] * 6 + [9] * 4
    for start, stop in ((0, 1), (2, 7), (5, 6), (6, 10)):
        queries, passages = lists.pair_rows(start, stop)
        assert queries.tolist() == whole[0][start:stop].tolist()
        assert passages.tolist() == whole[1][start:stop].tolist()


def test_a_budget_of_minutes_by_hand():
    # 60 s at 0.18e12 operations a second, a step of 0.9e12: 12 steps
    assert fit_steps(1.0, 0.9e12, instances=1000, per_batch=8) == 12
    # 20 epochs of 16 lists in batches of 8 are 40 steps
    assert fit_steps(60.0, 0.9e12, instances=16, per_batch=8) == 40
    assert fit_steps(0.001, 0.9e12, instances=16, per_batch=8) == 1


def test_lists_of_a_query_become_one_by_hand():
    # query 4: positives 1 and 9, negatives 2 and 3 of the first part, 5 of the second, where 9 is a positive
    first = Lists(
        np.array([4, 6]),
        np.array([0, 4, 6]),
        np.array([1, 1]),
        np.array([1, 2, 3, 9, 7, 8], np.int32),
    )
    second = Lists(
        np.array([4, 5]),
        np.array([0, 4, 6]),
        np.array([2, 1]),
        np.array([1, 9, 3, 5, 0, 2], np.int32),
    )
    merged = merge_lists([first, second])
    assert merged.queries.tolist() == [4, 6, 5]
    assert merged.positives.tolist() == [2, 1, 1]
    lists = [
        merged.passages[a:b].tolist()
        for a, b in zip(merged.offsets[:-1], merged.offsets[1:], strict=True)
    ]
    assert lists == [[1, 9, 2, 3, 5], [7, 8], [0, 2]]
    assert merged.passages.dtype == np.int32
