"""Texts as sets of shingles: hashes of every run of `size` words or characters, made for many texts at once."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tandem.audits.noise.hashing import Hashes, mix64
from tandem.data.rows import Rows

BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: a digit never falls out of the polynomial
SPACE = ord(" ")


def normalised(text: str) -> str:
    """A text as it counts for equality: Unicode NFKC, case folded, white space one space each and none at the ends.

    NFKC also makes full-width letters and digits of Chinese texts their ordinary selves.
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True)
class Shingling:
    """How texts are cut.

    Attributes:
        unit: `words` (what white space separates) or `characters` (Chinese, Japanese: no spaces between words).
        size: how many of them make a shingle.
    """

    unit: str
    size: int

    def hashes(self, texts: Sequence[str]) -> tuple[Hashes, Rows]:
        """Hashes of all shingles of some normalised, non-empty texts, repetitions included.

        A text of fewer units than `size` is one shingle, filled up with a character that no text holds.

        Returns:
            The hashes, text after text, and the number of shingles of each text (at least 1).
        """
        if self.unit == "words":
            units, counts = _words([self._filled(text, text.count(" ") + 1, " \0") for text in texts])
        else:
            units, counts = _characters([self._filled(text, len(text), "\0") for text in texts])
        hashes = np.zeros(len(units) - self.size + 1, np.uint64)
        for at in range(self.size):
            hashes *= BASE
            hashes += units[at : at + len(hashes)]
        inside = np.ones(len(units), bool)
        ends = np.cumsum(counts)
        for back in range(1, self.size):  # these would run into the next text
            inside[ends - back] = False
        return mix64(hashes[inside[: len(hashes)]]), counts - self.size + 1

    def _filled(self, text: str, units: int, filler: str) -> str:
        return text + filler * (self.size - units)


def _codes(text: str) -> Hashes:
    """Code points of a text."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)


def _characters(texts: list[str]) -> tuple[Hashes, Rows]:
    """A hash of every character, and the number of characters of each text."""
    return mix64(_codes("".join(texts)) + np.uint64(1)), np.asarray([len(text) for text in texts], np.int64)


def _words(texts: list[str]) -> tuple[Hashes, Rows]:
    """A hash of every word (a polynomial of its characters), and the number of words of each text."""
    codes = _codes(" ".join(texts) + " ")
    ends = np.flatnonzero(codes == SPACE) + 1  # each word with the space after it
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    inside = np.arange(len(codes)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max()), BASE, np.uint64).cumprod()
    hashes = np.add.reduceat((codes + np.uint64(1)) * powers[inside], starts)
    return mix64(hashes), np.asarray([text.count(" ") + 1 for text in texts], np.int64)
