"""Ragged rows: their files, and gathering of many at once."""

import numpy as np
import pytest

from tandem.models.ragged import Ragged, join_ranges, write_ragged


def test_ragged_rows_may_be_empty(tmp_path):
    batches = [[[1, 2, 3], []], [], [[65535]]]
    assert write_ragged(tmp_path, "x", batches, "uint16") == (3, 4)
    ragged = Ragged.open(tmp_path, "x", "uint16")
    assert [ragged[i].tolist() for i in range(len(ragged))] == [[1, 2, 3], [], [65535]]
    assert ragged.lengths(np.array([2, 0, 1])).tolist() == [1, 3, 0]


def test_offsets_are_written_as_numpy_saves_them(tmp_path):
    rng = np.random.default_rng(1)
    lengths = [rng.integers(0, 4, size).tolist() for size in (7, 100, 0, 2000)]
    write_ragged(tmp_path, "x", ([[1] * length for length in batch] for batch in lengths), "uint16")
    np.save(
        tmp_path / "expected.npy",
        np.cumsum([0, *(length for batch in lengths for length in batch)]),
    )
    assert (tmp_path / "x.offsets.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


@pytest.mark.parametrize("batches", [[], [[[], []]]])
def test_ragged_without_any_token(tmp_path, batches):
    rows, tokens = write_ragged(tmp_path, "x", batches, "uint32")
    ragged = Ragged.open(tmp_path, "x", "uint32")
    assert tokens == 0
    assert [ragged[i].tolist() for i in range(rows)] == [[]] * rows


def test_spread_by_hand():
    assert join_ranges(np.array([10, 3, 7]), np.array([3, 0, 2])).tolist() == [10, 11, 12, 7, 8]
    assert join_ranges(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


def test_taken_rows_are_the_rows_one_by_one(tmp_path):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 60000, length).tolist() for length in rng.integers(0, 9, 50)]
    write_ragged(tmp_path, "x", [rows[:20], rows[20:]], "uint16")
    ragged = Ragged.open(tmp_path, "x", "uint16")
    for indices in (np.array([3, 49, 3, 0]), np.arange(50), np.empty(0, np.int64)):
        taken = ragged.take(indices)
        assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in indices]
        assert taken.ids.dtype == np.uint16
    again = Ragged.of([ragged[i] for i in range(50)])
    assert again.ids.tolist() == ragged.ids.tolist()
    assert again.offsets.tolist() == ragged.offsets.tolist()
    assert Ragged.of(ragged) is ragged
    assert len(Ragged.of([])) == 0


def test_a_row_is_a_copy_of_the_first_one_with_its_ids():
    rows = [np.array(ids, np.uint16) for ids in ([5, 6], [], [5], [5, 6], [6, 5], [], [5, 6])]
    assert Ragged.of(rows).find_first_copies().tolist() == [0, 1, 2, 0, 4, 1, 0]
    assert Ragged.of([]).find_first_copies().tolist() == []
