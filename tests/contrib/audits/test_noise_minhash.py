"""Signatures equal the library's, whatever the blocks; the bands' recall by its formula."""

import numpy as np
import pytest
from datasketch import MinHash, MinHashLSH

from tandem.contrib.audits import minhash
from tandem.contrib.audits.minhash import Shingling, Sketcher, cut_into_pieces

TEXTS = [
    " ".join(f"w{(n * step) % 97}" for n in range(length))
    for step, length in enumerate((1, 2, 5, 300, 40), start=1)
]


@pytest.mark.parametrize("block", [1, 7, 64, 100_000])
def test_signatures_are_those_of_datasketch(monkeypatch, block):
    monkeypatch.setattr(minhash, "SHINGLES_PER_BLOCK", block)
    sketcher = Sketcher(Shingling("words", 3), 0.8, 16, seed=5)
    hashes, counts = sketcher.shingling.hash_texts(TEXTS)
    signatures = sketcher.sign(hashes, counts)
    for row, part in zip(signatures, np.split(hashes, np.cumsum(counts)[:-1]), strict=True):
        theirs = MinHash(num_perm=16, seed=5, hashfunc=lambda value: value)
        theirs.update_batch((part >> np.uint64(32)).tolist())
        assert row.tolist() == theirs.hashvalues.tolist()


def test_bands_meet_where_the_library_buckets_would():
    texts = [
        "one two three four five",
        "one two three four six",
        "one two three four five",
        "seven eight nine ten",
    ]
    sketcher = Sketcher(Shingling("words", 2), 0.5, 32, seed=1)
    bands, rows = sketcher.bands
    index = MinHashLSH(num_perm=32, params=(bands, rows))
    keys = sketcher.hash_bands(texts)
    for at, signature in enumerate(sketcher.sign(*sketcher.shingling.hash_texts(texts))):
        theirs = MinHash(hashvalues=signature, seed=1, scheme="affine32")
        ours = {f"t{other}" for other in range(at) if (keys[:, other] == keys[:, at]).any()}
        assert set(index.query(theirs)) == ours
        index.insert(f"t{at}", theirs)
    assert (keys[:, 0] == keys[:, 2]).all()


def test_keys_do_not_depend_on_pieces(monkeypatch):
    sketcher = Sketcher(Shingling("characters", 4), 0.8, 64, seed=1)
    together = sketcher.hash_bands(TEXTS)
    monkeypatch.setattr(minhash, "cut_into_pieces", lambda texts: cut_into_pieces(texts, 10))
    assert sketcher.hash_bands(TEXTS).tolist() == together.tolist()
    assert [len(piece) for piece in cut_into_pieces(["aaaa"] * 5 + ["a" * 30], 10)] == [2, 2, 1, 1]


def test_recall_at_the_threshold():
    sketcher = Sketcher(Shingling("words", 3), 0.8, 64, seed=1)
    assert sketcher.bands == (10, 6)
    assert sketcher.recall == pytest.approx(1 - (1 - 0.262144) ** 10)  # 0.8⁶ = 0.262144


@pytest.mark.parametrize(("threshold", "permutations"), [(1.0, 64), (0.97, 17)])
def test_near_a_threshold_of_1_there_are_two_bands(threshold, permutations):
    sketcher = Sketcher(Shingling("words", 3), threshold, permutations, seed=1)
    assert sketcher.bands == (2, permutations // 2)
    assert sketcher.hash_bands(TEXTS).shape == (2, len(TEXTS))
