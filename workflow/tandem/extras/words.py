"""Words in any script: what counts as a word, how rare it is, and which word a misspelt one stands for."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from string import ascii_lowercase

import regex

from tandem.data.collection import Collection, join_contents

# Scripts written without spaces: a run of them is no word, its pairs of neighbouring characters stand for words.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
RUN = regex.compile(rf"(?V1)(?P<unspaced>[{UNSPACED}]+)|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+")
COMMON = 0.1  # a word that a larger share of the passages holds says nothing about what is asked
LETTERS = 5  # shorter words have neighbours by chance


def folded(text: str) -> str:
    """The text without differences of case and width (Unicode NFKC, then case folding)."""
    return unicodedata.normalize("NFKC", text).casefold()


def normal(text: str) -> str:
    """The runs of letters and digits, joined by spaces; a text without any is itself."""
    text = folded(text)
    return " ".join(match[0] for match in RUN.finditer(text)) or text.strip()


def terms(text: str) -> list[str]:
    """The words of a text; of an unspaced run its overlapping pairs of characters, or its only character."""
    words: list[str] = []
    for match in RUN.finditer(folded(text)):
        run = match[0]
        words += map("".join, pairwise(run)) if match["unspaced"] and len(run) > 1 else [run]
    return words


class Rarity:
    """Document frequencies, by one pass over a collection, of the words of queries and of their misspellings.

    Memory: about 54 strings for each letter of a query's word, whatever the corpus' size.
    """

    def __init__(self, collection: Collection, queries: Iterable[str]) -> None:
        words = {word for query in queries for word in terms(query)}
        self.near = {word: edits(word) for word in words if len(word) >= LETTERS and set(word) <= set(ascii_lowercase)}
        counted = words.union(*self.near.values())
        self.passages, self.counts = collection.passages, Counter[str]()
        for batch in collection.batches(columns=("title", "text")):
            for title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self.counts.update(counted.intersection(terms(join_contents(title, text))))

    def weights(self, query: list[str]) -> dict[str, float]:
        """The query's content words, in order, with ln(1 + (N - n + ½) / (n + ½)): BM25's weight as Lucene has it.

        Words that no passage has are left out: they tell no passage from another.
        """
        most = max(1.0, COMMON * self.passages)
        return {
            word: math.log1p((self.passages - self.counts[word] + 0.5) / (self.counts[word] + 0.5))
            for word in dict.fromkeys(query)
            if 0 < self.counts[word] <= most
        }

    def misspelt(self, query: list[str]) -> dict[str, str]:
        """Query word → likely meant word, for words in no passage: of those one typing error away the most frequent."""
        like = {
            word: max(self.near[word], key=lambda other: (self.counts[other], other))
            for word in dict.fromkeys(query)
            if word in self.near and not self.counts[word]
        }
        return {word: other for word, other in like.items() if self.counts[other]}


def edits(word: str) -> set[str]:
    """Every word one deletion, swap of neighbours, replacement or insertion of a letter away; a plural is no error."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    words = {left + right[1:] for left, right in cuts if right}
    words |= {left + right[1] + right[0] + right[2:] for left, right in cuts if len(right) > 1}
    words |= {left + letter + right[1:] for left, right in cuts if right for letter in ascii_lowercase}
    words |= {left + letter + right for left, right in cuts for letter in ascii_lowercase}
    return words - {word, f"{word}s", word.removesuffix("s")}
