"""Blocks on disk: what is recorded about them, which of them count, and one interface to fp16 and int8."""

import json

import numpy as np
import pytest

from tandem.retrieval.embeddings import Blocks, Embeddings, name_block
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256, write_json
from tandem.store.job import writing

VECTORS = np.random.default_rng(2).normal(size=(10, 6)).astype(np.float32)


COMPUTED = {"model": "de-0000000004", "precision": "fp32", "device": "cpu"}


@pytest.fixture(params=["fp16", "int8"])
def blocks(request, tmp_path):
    """A store of three blocks of four rows, the last of two; the vectors for it, as fp16 or float32."""
    store = Blocks(tmp_path / "x-0123456789", len(VECTORS), 4, "made of this", request.param)
    return store, VECTORS.astype(np.float16) if request.param == "fp16" else VECTORS


@pytest.fixture
def written(blocks):
    store, vectors = blocks
    for number in (2, 0, 1):
        store.write(number, vectors[store.locate(number)], COMPUTED)
    return store


@pytest.fixture
def embeddings(written, make_job):
    """The blocks as an artifact; what they stand for, by hand."""
    job = make_job("embeddings", written.folder, {"side": "passages"})
    with writing(job) as draft:
        for number in range(3):
            path = written.locate_file(number)
            draft.add(name_block(number), path.stat().st_size, sha256(path))
        write_json(
            draft.path("meta.json"),
            {"rows": 10, "dimension": 6, "block": 4, "dtype": written.dtype, "temperature": 1},
        )
    files = [np.load(written.locate_file(number)) for number in range(3)]
    if written.dtype == "int8":
        files = [file["scale"].astype(np.float64)[:, None] * file["values"] for file in files]
    return Embeddings(open_artifact(job.out), "passages"), np.concatenate(files)


def test_a_block_tells_its_rows_dtype_hash_and_origin(written):
    facts = json.loads((written.folder / "blocks/00002.json").read_text())
    assert facts == {
        "rows": 2,
        "dtype": written.dtype,
        "sha256": sha256(written.folder / "blocks/00002.npy"),
        "origin": "made of this",
        **COMPUTED,
        # two vectors have no neighbours to lose
        **({"kept": None} if written.dtype == "int8" else {}),
    }
    assert written.check_finished([2], "x", 1) == {2: facts}
    # 6 numbers of two bytes, or of one and a scale of four; numpy's header before them
    sizes = [written.locate_file(number).stat().st_size for number in range(3)]
    assert sizes[0] - sizes[2] == 2 * (12 if written.dtype == "fp16" else 10)


def test_finished_blocks_are_whole_and_of_the_same_origin(written):
    whole = written.check_finished(range(3), "x", 2)
    assert list(whole) == [0, 1, 2]
    assert list(written.check_finished(range(0, 3, 2), "x", 1)) == [0, 2]
    other = Blocks(written.folder, written.rows, 4, "made of that", written.dtype)
    assert other.check_finished(range(3), "x", 2) == {}
    path = written.locate_file(1)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (written.folder / "blocks/00002.json").unlink()
    assert whole[1]["sha256"] != sha256(path)
    assert list(written.check_finished(range(3), "x", 2)) == [0]


def test_what_was_left_half_written_is_removed(written):
    half = written.folder / "blocks/.00001.npy.12345"
    half.write_bytes(b"half")
    written.remove_partial()
    assert sorted(path.suffix for path in half.parent.iterdir()) == [".json"] * 3 + [".npy"] * 3


def test_readers_get_what_is_stored(embeddings):
    reader, expected = embeddings
    firsts, parts = zip(*reader.iterate_blocks(), strict=True)
    assert firsts == (0, 4, 8)
    assert (np.concatenate(parts) == expected).all()
    assert {part.dtype for part in parts} == {
        np.dtype("float16" if reader.dtype == "fp16" else "float32")
    }
    assert np.abs(expected - VECTORS).max() < 0.02
    assert (reader.read_block(1, slice(1, 3)) == expected[5:7]).all()
    for start, stop in ((0, 10), (3, 9), (4, 8), (5, 6), (9, 99), (6, 6), (10, 12), (99, 120)):
        taken = reader.take(start, stop)
        assert taken.shape == (len(range(10)[start:stop]), 6)
        assert (taken == expected[start:stop]).all()
        assert not isinstance(taken, np.memmap)
