"""MinHash signatures and their LSH bands, for many texts at once.

Broder, "On the resemblance and containment of documents" (1997): the smallest value of a random permutation over a set
of shingles is equal for two sets with the probability of their Jaccard similarity. A band is `rows` of these values;
two texts meet in a bucket if one of `bands` bands is equal, with probability 1 - (1 - J^rows)^bands. The permutations
and the choice of bands are datasketch's (scheme `affine32`); the signatures equal those of its `MinHash`, which makes
one text at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from datasketch import MinHash, MinHashLSH

from tandem.audits.noise.hashing import Hashes, Words, mix32, mix64
from tandem.audits.noise.shingles import Shingling
from tandem.data.rows import Rows

# How much a missed pair weighs against a needless comparison when datasketch chooses the bands: needless ones cost
# only time, since every pair is compared in full afterwards.
WEIGHTS = (0.05, 0.95)
BLOCK = 1024  # shingles whose permuted values fit the processor's cache
MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class Sketcher:
    """Signatures and bands of one threshold and seed.

    Attributes:
        shingling: how texts are cut.
        threshold: Jaccard similarity from which two texts are near-duplicates.
        permutations: values of a signature.
        seed: of the permutations.
    """

    shingling: Shingling
    threshold: float
    permutations: int
    seed: int

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

    def signatures(self, hashes: Hashes, counts: Rows) -> Words:
        """The smallest permuted value of each text's shingles.

        Args:
            hashes: of shingles, text after text.
            counts: number of shingles of each text, at least 1.
        Returns:
            Shape (texts, permutations).
        """
        factors, offsets = MinHash(num_perm=self.permutations, seed=self.seed).permutations
        values = mix32((hashes >> np.uint64(32)).astype(np.uint32))
        ends = np.cumsum(counts)
        made = np.full((len(counts), self.permutations), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(values), BLOCK):
            stop = min(start + BLOCK, len(values))
            first, last = np.searchsorted(ends, [start, stop - 1], side="right")
            starts = np.maximum(ends[first : last + 1] - counts[first : last + 1], start) - start
            permuted = values[start:stop, None] * factors + offsets
            part = made[first : last + 1]
            np.minimum(part, np.minimum.reduceat(permuted, starts), out=part)
        return made

    def keys(self, texts: list[str]) -> Hashes:
        """A hash of each band of each text's signature; texts are normalised and not empty.

        Returns:
            Shape (bands, texts).
        """
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
    piece: list[str] = []
    size = 0
    for text in texts:
        if piece and size + len(text) > characters:
            yield piece
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield piece
