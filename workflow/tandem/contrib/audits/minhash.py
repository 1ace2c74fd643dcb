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

Hashes32 = np.ndarray[Any, np.dtype[np.uint32]]

# Bases of polynomials modulo 2^64: odd, so that no power is 0 and every digit counts.
_UNIT_BASE = np.uint64(0x9E3779B97F4A7C15)
_BAND_BASE = np.uint64(0xD6E8FEB86659FD93)
_SPACE_CODE = ord(" ") + 1  # as `_encode_characters` encodes it
# The weights of a missed pair and of a needless comparison when datasketch chooses the bands. Needless comparisons cost
# only time, since every pair is compared in full afterwards.
_BAND_WEIGHTS = (0.05, 0.95)
_FEWEST_BANDS = 2  # the fewest that datasketch allows
SHINGLES_PER_BLOCK = 1024  # whose permuted values fit the processor's cache


def mix_64_bits(values: IdHashes) -> IdHashes:
    """Map 64-bit values one to one so that every input bit affects every output bit: SplitMix64's finaliser.

    Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), variant 13 of Stafford.
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def mix_32_bits(values: Hashes32) -> Hashes32:
    """Apply the 32-bit finaliser of MurmurHash3, which datasketch's scheme `affine32` applies before it permutes."""
    mixed = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return mixed ^ (mixed >> np.uint32(16))


def normalise_for_equality(text: str) -> str:
    """Return the form of a text that counts for equality: Unicode NFKC, case folded, single spaces, none at the ends.

    NFKC also turns full-width letters and digits in Chinese texts into ordinary ones.

    >>> normalise_for_equality("  Two\\tWORDS ")
    'two words'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True)
class Shingling:
    """Cuts texts into runs of `size` words (separated by white space) or characters (Chinese, Japanese)."""

    unit: str
    size: int

    def hash_texts(self, texts: Sequence[str]) -> tuple[IdHashes, Rows]:
        """Return the hashes of all shingles of normalised, non-empty texts, text after text, and the number per text.

        Repetitions are included. A text of fewer units than `size` is one shingle, padded with a character that no text
        holds.
        """
        if self.unit == "words":
            units, counts = _hash_words(
                [text + " \0" * (self.size - text.count(" ") - 1) for text in texts]
            )
        else:
            filled = [text + "\0" * (self.size - len(text)) for text in texts]
            units = mix_64_bits(_encode_characters("".join(filled)))
            counts = np.asarray([len(text) for text in filled], np.int64)

        # Horner's scheme over all windows at once: after step `i` each holds a polynomial of its first `i + 1` units.
        hashes = np.zeros(len(units) - self.size + 1, np.uint64)
        for offset in range(self.size):
            hashes *= _UNIT_BASE
            hashes += units[offset : offset + len(hashes)]

        # Windows that begin at the last `size - 1` units of a text would extend into the next text.
        is_inside = np.ones(len(units), bool)
        ends = np.cumsum(counts)
        for back in range(1, self.size):
            is_inside[ends - back] = False
        return mix_64_bits(hashes[is_inside[: len(hashes)]]), counts - self.size + 1


def _encode_characters(text: str) -> IdHashes:
    """Return the code point of every character, plus one."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64) + np.uint64(1)


def _hash_words(texts: list[str]) -> tuple[IdHashes, Rows]:
    """Return a hash of every word (a polynomial of its characters), and the number of words of each text."""
    codes = _encode_characters(" ".join(texts) + " ")
    ends = np.flatnonzero(codes == _SPACE_CODE) + 1  # each word with the space after it
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    place_in_word = np.arange(len(codes)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max()), _UNIT_BASE, np.uint64).cumprod()
    hashes = np.add.reduceat(codes * powers[place_in_word], starts)
    return mix_64_bits(hashes), np.asarray([text.count(" ") + 1 for text in texts], np.int64)


@dataclass(frozen=True)
class Sketcher:
    """Computes signatures and bands for one threshold and seed."""

    shingling: Shingling
    threshold: float  # Jaccard similarity from which two texts are near-duplicates
    permutations: int  # values of a signature
    seed: int  # of the permutations

    @cached_property
    def bands(self) -> tuple[int, int]:
        """Return the number of bands, and the number of values in each.

        Near a threshold of 1, a single band would be best, but datasketch refuses it. Then the fewest allowed bands are
        used, each with half of the values. They propose more pairs, but no other duplicates result, since every pair is
        compared in full afterwards.
        """
        try:
            index = MinHashLSH(
                threshold=self.threshold, num_perm=self.permutations, weights=_BAND_WEIGHTS
            )
        except ValueError:
            return _FEWEST_BANDS, self.permutations // _FEWEST_BANDS
        return int(index.b), int(index.r)

    @property
    def recall(self) -> float:
        """Return the probability that a pair exactly at the threshold is found; it is higher for pairs above it."""
        bands, rows = self.bands
        return float(1 - (1 - self.threshold**rows) ** bands)

    def sign(self, hashes: IdHashes, counts: Rows) -> Hashes32:
        """Return the smallest permuted value of each text's shingles, shape (texts, permutations).

        Args:
            hashes: hashes of shingles, text after text.
            counts: the number of each text's shingles, at least 1.
        """
        factors, offsets = MinHash(num_perm=self.permutations, seed=self.seed).permutations
        values = mix_32_bits((hashes >> np.uint64(32)).astype(np.uint32))
        ends = np.cumsum(counts)
        signatures = np.full((len(counts), self.permutations), np.iinfo(np.uint32).max, np.uint32)

        # Shingles are processed block by block; a text in several blocks gets the smallest of their values.
        for start in range(0, len(values), SHINGLES_PER_BLOCK):
            stop = min(start + SHINGLES_PER_BLOCK, len(values))
            first_text, last_text = np.searchsorted(ends, [start, stop - 1], side="right")
            texts = slice(first_text, last_text + 1)
            # beginnings of the texts, within the block
            starts = np.maximum(ends[texts] - counts[texts], start) - start
            permuted = values[start:stop, None] * factors + offsets
            part = signatures[texts]
            np.minimum(part, np.minimum.reduceat(permuted, starts), out=part)
        return signatures

    def hash_bands(self, texts: list[str]) -> IdHashes:
        """Return a hash of each band of each normalised, non-empty text's signature; shape (bands, texts)."""
        bands, rows = self.bands
        powers = np.full(rows, _BAND_BASE, np.uint64).cumprod()
        keys = np.empty((bands, len(texts)), np.uint64)
        done = 0
        for piece in cut_into_pieces(texts):
            signatures = self.sign(*self.shingling.hash_texts(piece))[:, : bands * rows]
            values = signatures.reshape(len(piece), bands, rows).astype(np.uint64)
            keys[:, done : done + len(piece)] = mix_64_bits(
                (values * powers).sum(axis=2, dtype=np.uint64)
            ).T
            done += len(piece)
        return keys


def cut_into_pieces(texts: list[str], characters: int = 1 << 18) -> Iterator[list[str]]:
    """Yield texts in pieces of about `characters` characters, so that arrays over a piece stay small.

    A longer text is a piece of its own.
    """
    start = size = 0
    for position, text in enumerate(texts):
        if position > start and size + len(text) > characters:
            yield texts[start:position]
            start, size = position, 0
        size += len(text)
    if texts:
        yield texts[start:]
