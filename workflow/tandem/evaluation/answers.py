"""Does a passage hold an answer? Three rules, as DPR's dpr/data/qa_validation.py defines them.

Both sides are prepared once, a passage and an answer, so that a pair of them costs one search. One thing differs from
DPR: an answer without a token (an empty one, or for `kilt` one of articles and punctuation) matches nothing, where
DPR's loop and substring test find it in every passage.

Tokens are those of DrQA's SimpleTokenizer as DPR and Pyserini use it, lower-cased. Python's own `re` knows no Unicode
categories, hence the package `regex`.
"""

import string
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

import regex

TIMEOUT = 1.0  # seconds of processor time for one search by a user's pattern; some would take years


@cache
def _token() -> "regex.Pattern[str]":
    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def decomposed(text: str) -> str:
    """Unicode's canonical decomposition (NFD): `é` becomes `e` and an accent, both part of one token."""
    return unicodedata.normalize("NFD", text)


def words(text: str) -> list[str]:
    """Lower-cased tokens of a text, after NFD; none holds white space.

    Source: facebookresearch/DPR, dpr/utils/tokenizers.py: `tokenize(text).words(uncased=True)` on NFD text.
    """
    return [token.lower() for token in _token().findall(decomposed(text))]


class BrokenPattern(ValueError):
    """An answer is no regular expression."""


class Rule(ABC):
    """One way to find answers. It prepares an answer into a needle of its own kind."""

    @abstractmethod
    def passage(self, text: str) -> str:
        """Prepare a passage for searching."""

    @abstractmethod
    def needle(self, answer: str) -> Any:
        """Prepare an answer; None if it matches nothing, a `BrokenPattern` if it cannot be read."""

    @abstractmethod
    def contains(self, needle: Any, passage: str) -> bool:
        """Whether a prepared passage holds a prepared answer; a `TimeoutError` if that takes too long to tell."""


class String(Rule):
    """`string`: the answer's tokens stand in the passage, one after another; case and spaces do not matter."""

    def passage(self, text: str) -> str:
        """The tokens between spaces: no token holds one, so that a list inside a list is a text inside a text."""
        return f" {' '.join(words(text))} "

    def needle(self, answer: str) -> str | None:
        """The answer's tokens between spaces."""
        tokens = self.passage(answer)
        return tokens if tokens.strip() else None

    def contains(self, needle: str, passage: str) -> bool:
        """A contiguous sub-list of the passage's tokens."""
        return needle in passage


class Pattern(Rule):
    """`regex`: the answer is a regular expression, searched in the passage's NFD text (CuratedTREC).

    With the package `regex`, as DPR. Pyserini takes Python's `re`, for which `½` is part of a word: `\\b5\\b` is found
    in `5½` here and not there.
    """

    def passage(self, text: str) -> str:
        """The text after NFD, its case kept."""
        return decomposed(text)

    def needle(self, answer: str) -> "regex.Pattern[str] | None":
        """The compiled pattern. DPR counts one that does not compile as no match; so does the caller of this."""
        if not answer.strip():
            return None
        try:
            return regex.compile(decomposed(answer), regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
        except Exception as error:  # whatever it is: beside its own error the package raises RecursionError and others
            raise BrokenPattern(f"{answer[:60]!r} is no regular expression: {error}") from None

    def contains(self, needle: "regex.Pattern[str]", passage: str) -> bool:
        """A search of at most `TIMEOUT` seconds of processor time, so that a busy machine changes nothing."""
        return needle.search(passage, timeout=TIMEOUT) is not None


class Kilt(Rule):
    """`kilt`: SQuAD's normalisation on both sides, then a substring, word borders or not. No NFD here."""

    def passage(self, text: str) -> str:
        """Lower case; ASCII punctuation out, then `a`, `an` and `the`, then all but single spaces."""
        bare = text.lower().translate(str.maketrans("", "", string.punctuation))
        return " ".join(regex.sub(r"\b(?:a|an|the)\b", " ", bare).split())

    def needle(self, answer: str) -> str | None:
        """The normalised answer."""
        return self.passage(answer) or None

    def contains(self, needle: str, passage: str) -> bool:
        """A substring: `art` is found in `party`."""
        return needle in passage


RULES: dict[str, type[Rule]] = {"string": String, "regex": Pattern, "kilt": Kilt}


class Matcher:
    """The answers of all questions, prepared by a rule of `RULES`.

    Attributes:
        empty: answers that match nothing because they have no token.
        broken: answers that are no regular expression.
        timeouts: searches that were given up; each counts as no match.
    """

    def __init__(self, rule: str, answers: Sequence[Sequence[str]]) -> None:
        self.rule = RULES[rule]()
        self.empty = self.broken = self.timeouts = 0
        self.needles = [[n for answer in own if (n := self._needle(answer)) is not None] for own in answers]

    def _needle(self, answer: str) -> Any:
        try:
            needle = self.rule.needle(answer)
        except BrokenPattern:
            self.broken += 1
            return None
        self.empty += needle is None
        return needle

    def matches(self, text: str, questions: Sequence[int]) -> list[bool]:
        """Whether a passage holds an answer to each of some questions, by their numbers; it is prepared once."""
        passage = self.rule.passage(text)
        return [any(self._contains(needle, passage) for needle in self.needles[q]) for q in questions]

    def _contains(self, needle: Any, passage: str) -> bool:
        try:
            return self.rule.contains(needle, passage)
        except TimeoutError:
            self.timeouts += 1
            return False
