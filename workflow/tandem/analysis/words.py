"""How rare the words of some queries are in a corpus, and which of them look misspelt: one pass over the corpus."""

import math
from collections import Counter
from collections.abc import Iterable
from string import ascii_lowercase

from tandem.audits.similar.words import terms
from tandem.data.collection import Collection, contents

COMMON = 0.1  # a word that a larger share of the passages holds says nothing about what is asked
LETTERS = 5  # shorter words have neighbours by chance


class Rarity:
    """Document frequencies of the words of some queries, and of what one typing error makes of them.

    Memory: about 54 strings for each letter of a query's word, whatever the corpus' size.

    Args:
        collection: whose passages are counted.
        queries: texts.
    """

    def __init__(self, collection: Collection, queries: Iterable[str]) -> None:
        asked = {word for query in queries for word in terms(query)}
        self.near = {word: edits(word) for word in asked if len(word) >= LETTERS and set(word) <= set(ascii_lowercase)}
        wanted = asked.union(*self.near.values())
        self.passages, self.found = collection.passages, Counter[str]()
        for batch in collection.batches(columns=("title", "text")):
            for title, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self.found.update(wanted.intersection(terms(contents(title, text))))

    def weights(self, query: list[str]) -> dict[str, float]:
        """The query's content words, in order, with ln(1 + (N - n + ½) / (n + ½)): BM25's weight as Lucene has it.

        Words that no passage has are left out: they tell no passage from another.
        """
        most = max(1.0, COMMON * self.passages)
        return {
            word: math.log1p((self.passages - self.found[word] + 0.5) / (self.found[word] + 0.5))
            for word in dict.fromkeys(query)
            if 0 < self.found[word] <= most
        }

    def misspelt(self, query: list[str]) -> dict[str, str]:
        """Words that no passage has, with the word one typing error away that most passages have."""
        like = {
            word: max(self.near[word], key=lambda other: (self.found[other], other))
            for word in dict.fromkeys(query)
            if word in self.near and not self.found[word]
        }
        return {word: other for word, other in like.items() if self.found[other]}


def edits(word: str) -> set[str]:
    """Every word one deletion, swap of neighbours, replacement or insertion of a letter away; a plural is no error."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    made = {left + right[1:] for left, right in cuts if right}
    made |= {left + right[1] + right[0] + right[2:] for left, right in cuts if len(right) > 1}
    made |= {left + letter + right[1:] for left, right in cuts if right for letter in ascii_lowercase}
    made |= {left + letter + right for left, right in cuts for letter in ascii_lowercase}
    return made - {word, f"{word}s", word.removesuffix("s")}
