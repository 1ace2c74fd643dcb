"""Texts as sets of shingles, and their MinHash signatures and LSH bands, for many texts at once.

Broder, "On the resemblance and containment of documents" (1997): the smallest value of a random permutation over a set
of shingles is equal for two sets with the probability of their Jaccard similarity. A band is `rows` of these values;
two texts meet in a bucket if one of `bands` bands is equal, with probability 1 - (1 - J^rows)^bands. The permutations
and the choice of bands are datasketch's (scheme `affine32`); the signatures equal those of its `MinHash`, which handles
one text at a time.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from datasketch import MinHash, MinHashLSH

from tandem.data.rows import IdHashes, Rows

Words = np.ndarray[Any, np.dtype[np.uint32]]

BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: a digit never falls out of the polynomial
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
SPACE = ord(" ") + 1  # as `_codes` has it
# How much a missed pair weighs against a needless comparison when datasketch chooses the bands: needless ones cost
# only time, since every pair is compared in full afterwards.
WEIGHTS = (0.05, 0.95)
BLOCK = 1024  # shingles whose permuted values fit the processor's cache


def mix64(values: IdHashes) -> IdHashes:
    """A bijection of 64-bit values in which every input bit moves every output bit: SplitMix64's finaliser.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), variant 13 of Stafford.
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def mix32(values: Words) -> Words:
    """The 32-bit finaliser of MurmurHash3, which datasketch's scheme `affine32` applies before it permutes."""
    mixed = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return mixed ^ (mixed >> np.uint32(16))


def normalised(text: str) -> str:
    """A text as it counts for equality: Unicode NFKC, case folded, white space one space each and none at the ends.

    NFKC also makes full-width letters and digits of Chinese texts their ordinary selves.
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True)
class Shingling:
    """How texts are cut: into runs of `size` words (what white space separates) or characters (Chinese, Japanese)."""

    unit: str
    size: int

    def hashes(self, texts: Sequence[str]) -> tuple[IdHashes, Rows]:
        """Hashes of all shingles of some normalised, non-empty texts, text after text, and the number of each text's.

        Repetitions are included. A text of fewer units than `size` is one shingle, filled up with a character that no
        text holds.
        """
        if self.unit == "words":
            units, counts = _words([text + " \0" * (self.size - text.count(" ") - 1) for text in texts])
        else:
            filled = [text + "\0" * (self.size - len(text)) for text in texts]
            units, counts = mix64(_codes("".join(filled))), np.asarray(list(map(len, filled)), np.int64)
        hashes = np.zeros(len(units) - self.size + 1, np.uint64)
        for at in range(self.size):
            hashes *= BASE
            hashes += units[at : at + len(hashes)]
        inside = np.ones(len(units), bool)
        ends = np.cumsum(counts)
        for back in range(1, self.size):  # these would run into the next text
            inside[ends - back] = False
        return mix64(hashes[inside[: len(hashes)]]), counts - self.size + 1


def _codes(text: str) -> IdHashes:
    """The code point of every character, from 1."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64) + np.uint64(1)


def _words(texts: list[str]) -> tuple[IdHashes, Rows]:
    """A hash of every word (a polynomial of its characters), and the number of words of each text."""
    codes = _codes(" ".join(texts) + " ")
    ends = np.flatnonzero(codes == SPACE) + 1  # each word with the space after it
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    inside = np.arange(len(codes)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max()), BASE, np.uint64).cumprod()
    hashes = np.add.reduceat(codes * powers[inside], starts)
    return mix64(hashes), np.asarray([text.count(" ") + 1 for text in texts], np.int64)


@dataclass(frozen=True)
class Sketcher:
    """Signatures and bands of one threshold and seed."""

    shingling: Shingling
    threshold: float  # Jaccard similarity from which two texts are near-duplicates
    permutations: int  # values of a signature
    seed: int  # of the permutations

    @cached_property
    def bands(self) -> tuple[int, int]:
        """Number of bands, and values in each."""
        index = MinHashLSH(threshold=self.threshold, num_perm=self.permutations, weights=WEIGHTS)
        return int(index.b), int(index.r)

    @property
    def recall(self) -> float:
        """The probability that a pair exactly at the threshold is found; pairs above it are likelier."""
        bands, rows = self.bands
        return float(1 - (1 - self.threshold**rows) ** bands)

    def signatures(self, hashes: IdHashes, counts: Rows) -> Words:
        """The smallest permuted value of each text's shingles, shape (texts, permutations).

        `hashes` are of shingles, text after text, `counts` the number of each text's, at least 1.
        """
        factors, offsets = MinHash(num_perm=self.permutations, seed=self.seed).permutations
        values = mix32((hashes >> np.uint64(32)).astype(np.uint32))
        ends = np.cumsum(counts)
        signatures = np.full((len(counts), self.permutations), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(values), BLOCK):
            stop = min(start + BLOCK, len(values))
            first, last = np.searchsorted(ends, [start, stop - 1], side="right")
            starts = np.maximum(ends[first : last + 1] - counts[first : last + 1], start) - start
            permuted = values[start:stop, None] * factors + offsets
            part = signatures[first : last + 1]
            np.minimum(part, np.minimum.reduceat(permuted, starts), out=part)
        return signatures

    def keys(self, texts: list[str]) -> IdHashes:
        """A hash of each band of each normalised, non-empty text's signature; shape (bands, texts)."""
        bands, rows = self.bands
        keys = np.empty((bands, len(texts)), np.uint64)
        at = 0
        for part in pieces(texts):
            signatures = self.signatures(*self.shingling.hashes(part))[:, : bands * rows]
            values = signatures.reshape(len(part), bands, rows).astype(np.uint64)
            powers = np.full(rows, MULTIPLIER, np.uint64).cumprod()
            keys[:, at : at + len(part)] = mix64((values * powers).sum(axis=2, dtype=np.uint64)).T
            at += len(part)
        return keys


def pieces(texts: list[str], characters: int = 1 << 18) -> Iterator[list[str]]:
    """Texts in pieces of about so many characters, so that arrays over them stay small; a long text is its own."""
    start = size = 0
    for at, text in enumerate(texts):
        if at > start and size + len(text) > characters:
            yield texts[start:at]
            start, size = at, 0
        size += len(text)
    if texts:
        yield texts[start:]
