"""Words in any script: what counts as a word, how rare it is, and which word a misspelt one means."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from string import ascii_lowercase

import regex

from tandem.data.collection import Collection, join_contents

# Scripts written without spaces: a run of them is not a word, but its pairs of neighbouring characters count as words.
_UNSPACED_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_RUN = regex.compile(
    rf"(?V1)(?P<unspaced>[{_UNSPACED_SCRIPTS}]+)|[[\p{{L}}\p{{N}}\p{{M}}]--[{_UNSPACED_SCRIPTS}]]+"
)
# Parts of words that Python's `\w` leaves out: vowel signs of Hindi and Bengali, short vowels of Arabic, accents apart.
# They are listed for patterns of `re`, whose `\w` has ² and ½, too; that of `regex` has marks, but not these.
MARKS = "".join(
    sign for sign in map(chr, range(0x300, 0x1F000)) if unicodedata.category(sign)[0] == "M"
)
# a word that a larger share of the passages holds says nothing about a query's topic
_COMMON_SHARE = 0.1
_SHORTEST_CORRECTED = 5  # letters; shorter words have neighbours by chance
# English words that say nothing: Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
LUCENE_STOP_WORDS = {
    "a",
    "an",
    "and",
    "are",
    "as",
    "at",
    "be",
    "but",
    "by",
    "for",
    "if",
    "in",
    "into",
    "is",
    "it",
    "no",
    "not",
    "of",
    "on",
    "or",
    "such",
    "that",
    "the",
    "their",
    "then",
    "there",
    "these",
    "they",
    "this",
    "to",
    "was",
    "will",
    "with",
}


def fold(text: str) -> str:
    """Return the text without differences of case and width (Unicode NFKC, then case folding).

    >>> fold("ＡＢＣ Straße")
    'abc strasse'
    """
    return unicodedata.normalize("NFKC", text).casefold()


def join_folded_words(text: str) -> str:
    """Return the runs of letters and digits, joined by spaces; a text without any is returned as it is.

    >>> join_folded_words("What's up, Doc?")
    'what s up doc'
    """
    text = fold(text)
    return " ".join(match[0] for match in _RUN.finditer(text)) or text.strip()


def split_into_terms(text: str) -> list[str]:
    """Return the words of a text; an unspaced run gives its overlapping pairs of characters, or its only character.

    >>> split_into_terms("BM25 和向量")
    ['bm25', '和向', '向量']
    """
    terms: list[str] = []
    for match in _RUN.finditer(fold(text)):
        run = match[0]
        if match["unspaced"] and len(run) > 1:
            terms += map("".join, pairwise(run))
        else:
            terms.append(run)
    return terms


class Rarity:
    """Counts, in one pass over a collection, the passages with the words of queries or likely corrections of them.

    Memory: about 54 strings per letter of a query's word, whatever the corpus' size.
    """

    def __init__(self, collection: Collection, queries: Iterable[str]) -> None:
        words = {word for query in queries for word in split_into_terms(query)}
        corrected = [
            word
            for word in words
            if len(word) >= _SHORTEST_CORRECTED and set(word) <= set(ascii_lowercase)
        ]
        self.near = {word: list_edits(word) for word in corrected}
        counted = words.union(*self.near.values())

        self.passages, self.counts = collection.passages, Counter[str]()
        for batch in collection.batches(columns=("title", "text")):
            for title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self.counts.update(
                    counted.intersection(split_into_terms(join_contents(title, text)))
                )

    def weigh(self, query: list[str]) -> dict[str, float]:
        """Return the query's content words, in order, with ln(1 + (N - n + ½) / (n + ½)), as Lucene's BM25 weighs them.

        Words that no passage has are left out: they distinguish no passages. So are words that too many have.
        """
        most = max(1.0, _COMMON_SHARE * self.passages)
        weights = {}
        for word in dict.fromkeys(query):
            count = self.counts[word]
            if 0 < count <= most:
                weights[word] = math.log1p((self.passages - count + 0.5) / (count + 0.5))
        return weights

    def correct(self, query: list[str]) -> dict[str, str]:
        """Return the likely meant word for each word in no passage: the most frequent word one typing error away."""
        corrections = {}
        for word in dict.fromkeys(query):
            if word not in self.near or self.counts[word]:
                continue
            likely = max(self.near[word], key=lambda other: (self.counts[other], other))
            if self.counts[likely]:
                corrections[word] = likely
        return corrections


def list_edits(word: str) -> set[str]:
    """Return every word at one deletion, swap of neighbours, replacement or insertion of a letter.

    A plural is not an error.
    """
    words: set[str] = set()
    for cut in range(len(word) + 1):
        left, right = word[:cut], word[cut:]
        words.update(left + letter + right for letter in ascii_lowercase)
        if right:
            words.add(left + right[1:])
            words.update(left + letter + right[1:] for letter in ascii_lowercase)
        if len(right) > 1:
            words.add(left + right[1] + right[0] + right[2:])
    return words - {word, f"{word}s", word.removesuffix("s")}
