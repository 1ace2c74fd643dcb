"""The store of pair scores: what is found, what survives a kill, and two writers at once."""

import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from tandem.errors import UserError
from tandem.retrieval import pair_store as module
from tandem.retrieval.pair_store import PairStore, pair_keys


def keys(*pairs):
    return np.sort(pair_keys(np.array([q for q, _ in pairs]), np.array([p for _, p in pairs])))


def test_keys_by_hand():
    packed = pair_keys(np.array([0, 1, 3]), np.array([7, 0, 2**32 - 1]))
    assert packed.tolist() == [7, 2**32, 3 * 2**32 + 2**32 - 1]


def test_what_was_kept_is_found_by_another_reader(tmp_path):
    store = PairStore(tmp_path / "pairs")
    pairs = keys((0, 1), (0, 5), (2, 1))
    assert np.isnan(store.lookup(pairs)).all()
    store.append(pairs[[2, 0]], np.array([0.25, -1e-30], np.float32))
    for reader in (store, PairStore(tmp_path / "pairs")):
        scores = reader.lookup(pairs)
        assert scores[[0, 2]].tolist() == [np.float32(-1e-30), 0.25]
        assert np.isnan(scores[1])


def test_readers_see_parts_that_others_add_and_merge(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS_PER_MERGE", 4)
    reader, writer = PairStore(tmp_path), PairStore(tmp_path)
    every = np.arange(10, dtype=np.uint64)
    reader.lookup(every)
    for n in range(10):
        writer.append(every[n : n + 1], np.array([n / 2], np.float32))
        assert np.nansum(reader.lookup(every)) == sum(i / 2 for i in range(n + 1))
    assert len(list(tmp_path.glob("*.npy"))) < 4 + 1


def test_large_parts_are_left_alone_when_merging(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS_PER_MERGE", 2)
    monkeypatch.setattr(module, "LARGE_PART_PAIRS", 5)
    store = PairStore(tmp_path)
    store.append(np.arange(100, 110, dtype=np.uint64), np.zeros(10, np.float32))
    large = set(tmp_path.glob("*.npy"))
    for n in range(6):
        store.append(np.array([n], np.uint64), np.ones(1, np.float32))
    assert large < set(tmp_path.glob("*.npy"))
    assert store.lookup(np.arange(6, dtype=np.uint64)).tolist() == [1.0] * 6


def test_pairs_that_stand_twice_do_no_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PARTS_PER_MERGE", 3)
    for _ in range(4):
        PairStore(tmp_path).append(np.array([4, 9], np.uint64), np.array([0.5, 2], np.float32))
    assert PairStore(tmp_path).lookup(np.array([4, 8, 9], np.uint64)).tolist()[::2] == [0.5, 2.0]


def test_a_half_written_part_does_not_count_and_a_damaged_one_is_named(tmp_path):
    store = PairStore(tmp_path)
    (tmp_path / ".half").write_bytes(b"torn")
    assert np.isnan(store.lookup(np.array([1], np.uint64))).all()
    (tmp_path / "whole.npy").write_bytes(b"torn")
    with pytest.raises(
        UserError, match="whole.npy: damaged .*; delete it, its pairs will be scored again"
    ):
        store.lookup(np.array([1], np.uint64))


def test_a_part_is_named_by_its_bytes_and_a_flipped_bit_is_seen(tmp_path):
    store = PairStore(tmp_path)
    store.append(np.array([4, 9], np.uint64), np.array([0.5, 2], np.float32))
    (part,) = tmp_path.glob("*.npy")
    data = bytearray(part.read_bytes())
    assert part.stem == hashlib.sha256(data).hexdigest()
    data[-2] ^= 1  # of the score 2.0
    part.write_bytes(data)
    # mapped, and not looked at again
    assert store.lookup(np.array([9], np.uint64)).tolist() == [2.015625]
    with pytest.raises(UserError, match="npy: damaged .its bytes do not give its name.; delete it"):
        PairStore(tmp_path).lookup(np.array([9], np.uint64))


def test_merging_parts_of_which_one_has_all_keeps_it(tmp_path, monkeypatch):
    store = PairStore(tmp_path)
    store.append(np.array([4, 9], np.uint64), np.array([0.5, 2], np.float32))
    monkeypatch.setattr(module, "PARTS_PER_MERGE", 2)
    store.append(np.array([9], np.uint64), np.array([2], np.float32))
    assert len(list(tmp_path.glob("*.npy"))) == 1
    for reader in (store, PairStore(tmp_path)):
        assert reader.lookup(np.array([4, 9], np.uint64)).tolist() == [0.5, 2.0]


WRITER = """
import sys, numpy as np
from pathlib import Path
from tandem.retrieval import pair_store as store
store.MERGE = 4
mine, every = store.PairStore(Path(sys.argv[1])), int(sys.argv[3])
for n in range(int(sys.argv[2]), 1_000_000, every):
    keys = np.arange(n * 10, n * 10 + 10, dtype=np.uint64)
    mine.lookup(keys)
    mine.append(keys, keys.astype(np.float32) / 2)
    print(n, flush=True)
"""


def test_two_processes_append_and_merge_at_once_and_are_killed(tmp_path):
    """Whatever a writer reported as appended is there after both were killed in the middle."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen([*command, str(first), "2"], stdout=subprocess.PIPE, text=True, env=env)
        for first in (0, 1)
    ]
    outputs = [[int(writer.stdout.readline()) for _ in range(15)] for writer in writers]
    assert [lines[0] for lines in outputs] == [0, 1]
    for writer in writers:
        assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
    rest = [int(line) for writer in writers for line in writer.communicate()[0].split("\n")[:-1]]
    appended = [*outputs[0], *outputs[1], *rest]
    pairs = np.sort(
        np.concatenate([np.arange(n * 10, n * 10 + 10, dtype=np.uint64) for n in appended])
    )
    assert np.array_equal(PairStore(tmp_path).lookup(pairs), pairs.astype(np.float32) / 2)
