"""Store scores of (query, passage) pairs on disk, so that no pair is scored twice.

A store consists of parts: files of sorted keys and scores, each named by the sha256 of its bytes. Any number of
processes may add parts at once.
"""

import hashlib
import json
import os
import re
import uuid
from pathlib import Path

import numpy as np

from tandem.errors import UserError
from tandem.retrieval.exact import Array
from tandem.store.files import sha256

_StoredPairs = tuple[Array, Array]

PARTS_PER_MERGE = 16  # this many parts are merged into one
LARGE_PART_PAIRS = 1 << 23  # a part with so many pairs, or more, is not merged
PART_NAME = re.compile(r"([0-9a-f]{64})\.npy")


def store_name(model: str, identity: object) -> str:
    """Return the name of a store's folder: the model's key, and a digest of all that may change a bit of a score."""
    return (
        f"{model}-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]}"
    )


def pair_keys(queries: Array, passages: Array) -> Array:
    """Return `query row << 32 | passage row` of each pair, uint64; both rows are below 2^32."""
    return (np.asarray(queries, np.uint64) << np.uint64(32)) | np.asarray(passages, np.uint64)


class PairStore:
    """Keep a folder of parts, memory-mapped; a part is one array of 32-bit words: all keys, then all scores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts: dict[str, _StoredPairs] = {}

    def lookup(self, keys: Array) -> Array:
        """Return the scores of pairs, given by sorted keys, float32, shape (pairs,); NaN for pairs without a score."""
        self._refresh()
        scores = np.full(len(keys), np.nan, np.float32)
        for stored, values in self._parts.values():
            places = np.searchsorted(stored, keys).clip(max=len(stored) - 1)
            is_stored = stored[places] == keys
            scores[is_stored] = values[places[is_stored]]
        return scores

    def append(self, keys: Array, scores: Array) -> None:
        """Store scores of pairs (any order, no pair twice); they survive a kill from here on."""
        if len(keys):
            order = np.argsort(keys)
            self._write(keys[order], scores[order])
            self._merge()

    def _write(self, keys: Array, scores: Array) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{uuid.uuid4().hex}"
        words = np.concatenate([keys.astype("<u8").view("<u4"), scores.astype("<f4").view("<u4")])
        with open(partial, "wb") as file:
            np.save(file, words)
            file.flush()
            os.fsync(file.fileno())
        name = f"{sha256(partial)}.npy"
        os.replace(partial, self.folder / name)
        return name

    def _refresh(self) -> None:
        present = {path.name for path in self.folder.glob("[!.]*.npy")}
        for name in sorted(present - self._parts.keys()):
            try:
                self._parts[name] = self.read(self.folder / name)
            except FileNotFoundError:
                # Another process has merged it in the meantime: its pairs are in another part.
                self._refresh()
                return
        self._parts = {name: part for name, part in sorted(self._parts.items()) if name in present}

    @staticmethod
    def read(path: Path) -> _StoredPairs:
        """Return a part's keys and scores, memory-mapped; every byte is read to refuse a damaged part."""
        try:
            if not (match := PART_NAME.fullmatch(path.name)) or match[1] != sha256(path):
                raise ValueError("its bytes do not give its name")
            words = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise UserError(
                f"{path}: damaged ({error}); delete it, its pairs will be scored again"
            ) from None
        count = len(words) // 3
        return words[: 2 * count].view("<u8"), words[2 * count :].view("<f4")

    def _merge(self) -> None:
        """Replace the smallest parts by one if there are many; a kill in between leaves pairs twice, harmlessly."""
        self._refresh()
        small = sorted(
            (len(keys), name)
            for name, (keys, _) in self._parts.items()
            if len(keys) < LARGE_PART_PAIRS
        )[:PARTS_PER_MERGE]
        if len(small) == PARTS_PER_MERGE:
            parts = [self._parts[name] for _, name in small]
            keys, first = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
            merged = self._write(keys, np.concatenate([part[1] for part in parts])[first])
            # The merged part may be one of them, if that already had all pairs.
            for name in {name for _, name in small} - {merged}:
                (self.folder / name).unlink(missing_ok=True)
            self._refresh()
