"""Ids to rows: exact, also where hashes collide, and with messages that name what is unknown."""

import numpy as np
import pyarrow as pa
import pytest

from tandem.data import rows as module
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, hash_ids, index_passages, index_queries, split_rows
from tandem.errors import UserError

IDS = ["b", "", "ab", "a", "ba", "Straße", "鳥", "a" * 300, "0", "00"]


def make_table(ids):
    return IdRows(pa.chunked_array([ids[:3], ids[3:]], pa.string()), "passage", "corpus")


def test_rows_and_ids_are_inverse():
    table, order = make_table(IDS), [4, 0, 9, 7, 1, 6, 6, 2, 3, 5, 8]
    assert table.rows([IDS[i] for i in order]).tolist() == order
    assert table.ids(np.array(order)) == [IDS[i] for i in order]
    assert len(table) == 10
    assert table.rows([]).shape == (0,)


def test_unknown_ids_are_named_or_minus_one():
    table = make_table(IDS)
    with pytest.raises(UserError, match=r"corpus: holds no passage heron \(2 of 3 ids unknown\)"):
        table.rows(["a", "heron", "owl"])
    assert table.rows(["a", "heron", "00", "owl"], missing_ok=True).tolist() == [3, -1, 9, -1]
    empty = IdRows(pa.chunked_array([], pa.string()), "query", "queries")
    assert empty.rows(["a"], missing_ok=True).tolist() == [-1]


def test_hash_by_hand():
    # length, then h = h * 10 + byte for each byte: "ab": (2 * 10 + 97) * 10 + 98
    assert hash_ids(pa.array(["", "a", "ab"]), 10).tolist() == [0, 107, 1268]
    sliced = pa.array(["x", "a", "ab", "y"]).slice(1, 2)
    assert hash_ids(sliced, 10).tolist() == [107, 1268]


def test_colliding_hashes_take_the_next_multiplier(monkeypatch):
    monkeypatch.setattr(module, "MULTIPLIERS", (0, 0x9E3779B97F4A7C15))
    assert make_table(IDS).rows(["ba", "ab"]).tolist() == [4, 2]
    assert make_table(IDS).multiplier == 0x9E3779B97F4A7C15


def test_a_hash_in_common_is_not_an_id_in_common(monkeypatch):
    monkeypatch.setattr(module, "MULTIPLIERS", (1,))  # a hash of letters in any order
    table = make_table(["ab", "ac"])
    assert table.rows(["ba"], missing_ok=True).tolist() == [-1]


def test_an_id_that_stands_twice_is_refused():
    with pytest.raises(UserError, match="passage id owl stands twice"):
        make_table(["a", "owl", "b", "owl"])


def test_rows_of_a_collection(dataset):
    collection = Collection(dataset)
    assert index_passages(collection).rows(["heron-1", "otter-3"]).tolist() == [3, 2]
    assert index_queries(collection).rows(["train-otter", "test-otter"]).tolist() == [0, 40]
    assert split_rows(collection, "dev").tolist() == list(range(20, 40))
    with pytest.raises(
        UserError, match="has no queries of the split eval; it has dev, test, train"
    ):
        split_rows(collection, "eval")


def test_many_ids():
    ids = [f"doc-{i * 7919 % 200_000}" for i in range(200_000)]
    table = IdRows(pa.chunked_array([ids], pa.string()), "passage", "corpus")
    sample = np.random.default_rng(0).integers(0, 200_000, 5000)
    assert table.rows([ids[i] for i in sample]).tolist() == sample.tolist()
