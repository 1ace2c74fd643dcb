"""Rules by which an answer is found in a text.

There are three, as DPR's dpr/data/qa_validation.py defines them, with one difference: an answer without a token (an
empty one, or for `kilt` one of articles and punctuation) matches nothing here, while DPR's loop and substring test find
it in every passage. Tokens are those of DrQA's SimpleTokenizer as DPR and Pyserini use it, lower-cased.
Python's own `re` knows no Unicode categories, hence the package `regex`.
"""

import string
import unicodedata
from collections.abc import Sequence
from functools import cache

import regex

# seconds of processor time for one search by a user's pattern; some would take years
PATTERN_SECONDS = 1.0


@cache
def _compile_token() -> "regex.Pattern[str]":
    return regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def normalise_canonically(text: str) -> str:
    """Return Unicode's canonical decomposition (NFD): `é` becomes `e` and an accent, both part of one token."""
    return unicodedata.normalize("NFD", text)


def split_words(text: str) -> list[str]:
    """Return the lower-cased tokens of a text in NFD; no token holds white space.

    Source: facebookresearch/DPR, dpr/utils/tokenizers.py: `tokenize(text).words(uncased=True)` on NFD text.
    """
    return [token.lower() for token in _compile_token().findall(normalise_canonically(text))]


def join_words(text: str) -> str:
    """Return the tokens joined by spaces. No token holds a space, so a list within a list is a text within a text."""
    return f" {' '.join(split_words(text))} "


def normalise(text: str) -> str:
    """Normalise as SQuAD does: lower-case, remove ASCII punctuation, then `a`, `an` and `the`; single spaces remain."""
    bare = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(regex.sub(r"\b(?:a|an|the)\b", " ", bare).split())


# How a rule prepares passages and answers. The prepared answer is then looked for in the passage:
#   string: its tokens one after another; case and spaces do not matter.
#   regex: as a regular expression, in the text's own case (CuratedTREC). With the package `regex`, as DPR; Pyserini
#     takes Python's `re`, for which `½` is part of a word: `\b5\b` is found in `5½` here and not there.
#   kilt: as a substring, word borders or not: `art` is found in `party`.
MATCHING_RULES = {"string": join_words, "regex": normalise_canonically, "kilt": normalise}


class Matcher:
    """The answers of all questions, prepared by a rule of `MATCHING_RULES`.

    It counts what matches nothing: answers without a token (`empty`), answers that are not a regular expression
    (`broken`; DPR counts them as no match, too), and searches that were given up (`timeouts`).
    """

    def __init__(self, rule: str, answers: Sequence[Sequence[str]]) -> None:
        self.rule = rule
        self.empty = self.broken = self.timeouts = 0
        self.needles: list[list[str | regex.Pattern[str]]] = []  # of each question
        for answers_of_question in answers:
            needles = map(self._prepare, answers_of_question)
            self.needles.append([needle for needle in needles if needle is not None])

    def _prepare(self, answer: str) -> "str | regex.Pattern[str] | None":
        needle = MATCHING_RULES[self.rule](answer)
        if not needle.strip():
            self.empty += 1
            return None
        if self.rule != "regex":
            return needle
        try:
            return regex.compile(needle, regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
        except Exception:
            # any exception: in addition to its own error, the package raises RecursionError and others
            self.broken += 1
            return None

    def matches(self, text: str, questions: Sequence[int]) -> list[bool]:
        """Return for each question, by its number, whether a passage holds an answer; the passage is tokenised once."""
        passage = MATCHING_RULES[self.rule](text)

        def holds_answer(question: int) -> bool:
            return any(self._contains(needle, passage) for needle in self.needles[question])

        return [holds_answer(question) for question in questions]

    def _contains(self, needle: "str | regex.Pattern[str]", passage: str) -> bool:
        if isinstance(needle, str):
            return needle in passage
        try:  # processor time, so that a busy machine changes nothing
            return needle.search(passage, timeout=PATTERN_SECONDS) is not None
        except TimeoutError:
            self.timeouts += 1
            return False
