"""The alphabetical order on disk: that of Python's strings, however many parts it is sorted in."""

import json
import multiprocessing
import random
from itertools import pairwise

import numpy as np
import pytest

from tandem.data import rows as module
from tandem.data.collection import Collection
from tandem.data.rows import IDS_FILE, META_FILE, RANKS_FILE, ROWS_FILE, PassageOrder, write_order
from tandem.errors import UserError


@pytest.fixture
def collection(tmp_path, make_dataset):
    """2,000 ids, written as they come, some of several bytes a letter, and some beginnings of others."""
    rng = random.Random(3)
    letters = ["a", "b", "Z", "é", "鳥", "𐍈", "~", "0"]
    ids = list(
        dict.fromkeys("".join(rng.choices(letters, k=rng.randint(1, 7))) for _ in range(4000))
    )[:2000]
    return make_dataset(tmp_path / "dataset" / "odd-0123456789", [(name, "", "x") for name in ids])


@pytest.mark.parametrize("part", [7, 300, 1999, 5000])
def test_parts_change_no_byte_of_the_order(collection, part, monkeypatch, tmp_path):
    ids = Collection(collection).doc_ids().to_pylist()
    monkeypatch.setattr(module, "IDS_PER_PART", part)
    monkeypatch.setattr(
        Collection.batches, "__defaults__", (450, ("doc_id", "title", "text"), None)
    )
    folder = tmp_path / "order" / collection.key
    write_order(
        Collection(collection), folder, collection.manifest.files["corpus.parquet"].sha256, part
    )
    order = PassageOrder(collection)
    alphabetical = sorted(ids)
    assert [alphabetical[rank] for rank in order.ranks] == ids
    assert order.ids(np.arange(2000)) == alphabetical
    assert order.ids(np.array([1999, 0, 5, 5])) == [alphabetical[rank] for rank in (1999, 0, 5, 5)]
    assert order.rows(ids[::-1]).tolist() == list(range(2000))[::-1]
    assert (folder / IDS_FILE).read_bytes() == "".join(alphabetical).encode()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        (RANKS_FILE, ROWS_FILE, "ends.npy", IDS_FILE, META_FILE)
    )


def test_ids_that_are_not_there_are_named_or_minus_one(collection):
    order = PassageOrder(collection)
    there = Collection(collection).doc_ids().to_pylist()[:2]
    assert order.rows([there[1], "", "nope", "\U0010ffff", there[0]], missing_ok=True).tolist() == [
        1,
        -1,
        -1,
        -1,
        0,
    ]
    with pytest.raises(UserError, match="odd-0123456789: holds no passage nope"):
        order.rows([there[0], "nope"])
    assert order.rows([]).tolist() == []


def test_an_order_of_an_older_kind_is_made_again(collection, tmp_path):
    folder = tmp_path / "order" / collection.key
    whole = PassageOrder(collection).rows(["nope"], missing_ok=True).tolist()
    meta = json.loads((folder / META_FILE).read_text())
    del meta["files"][ROWS_FILE]
    (folder / META_FILE).write_text(json.dumps(meta))
    (folder / ROWS_FILE).unlink()
    assert PassageOrder(collection).rows(["nope"], missing_ok=True).tolist() == whole


def test_a_part_holds_about_as_many_as_it_may(collection):
    splitters = module._choose_splitters(Collection(collection), 256)
    ids, edges = Collection(collection).doc_ids().to_pylist(), ["", *splitters, chr(0x10FFFF)]
    sizes = [sum(low <= name < high for name in ids) for low, high in pairwise(edges)]
    assert sizes == [250] * 8


def test_what_is_damaged_or_of_another_corpus_is_made_again(collection, make_dataset, tmp_path):
    folder = tmp_path / "order" / collection.key
    whole = PassageOrder(collection).ranks.tolist()
    there = (folder / RANKS_FILE).stat().st_mtime_ns
    PassageOrder(collection)
    assert (folder / RANKS_FILE).stat().st_mtime_ns == there
    np.save(folder / RANKS_FILE, np.zeros(2000, np.uint32))
    assert PassageOrder(collection).ranks.tolist() == whole
    other = make_dataset(tmp_path / "dataset" / collection.key, [("b", "", "x"), ("a", "", "x")])
    assert PassageOrder(other).ranks.tolist() == [1, 0]
    assert (
        json.loads((folder / META_FILE).read_text())["corpus"]
        == other.manifest.files["corpus.parquet"].sha256
    )


def test_a_corpus_that_was_changed_is_refused(collection):
    with collection.path("corpus.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match=r"corpus.parquet: changed since it was written"):
        PassageOrder(collection)


def opened(dataset):
    return PassageOrder(dataset).ids(np.arange(3))


def test_several_processes_make_it_once(collection, tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = pool.map(opened, [collection] * 3)
    assert (
        results[0]
        == results[1]
        == results[2]
        == sorted(Collection(collection).doc_ids().to_pylist())[:3]
    )
    assert [path.name for path in (tmp_path / "order").glob("[!.]*")] == [collection.key]
