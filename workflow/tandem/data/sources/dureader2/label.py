"""Which passages of a question are positive: Algorithm 1 of DuReader-retrieval, by the answers that people wrote."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tandem.data.segment import segmenter
from tandem.data.sources.dureader2.passages import passages
from tandem.data.sources.dureader2.records import Question
from tandem.data.sources.dureader2.spans import best_span

# Of ten released positives whose paragraphs and answers are at hand, ten reach 0.5 in characters and six in words.
UNITS = ("characters", "words")


@dataclass(frozen=True)
class Rules:
    """How passages are made and labelled.

    Attributes:
        unit: what a token of the span-level F1 is: one of `UNITS`.
        threshold: the least F1 of a positive paragraph.
        enough: the length at which a passage is long enough, in characters.
    """

    unit: str
    threshold: float
    enough: int


def texts(question: Question, rules: Rules) -> Iterator[str]:
    """The passages of a question's documents, in order; equal ones are repeated."""
    return map("".join, _passages(question, rules))


def labelled(question: Question, rules: Rules) -> list[tuple[bytes, bool]]:
    """(digest, whether it is positive) of each of `texts`: a passage is positive if one of its paragraphs is."""
    answers = [tokens(answer, rules.unit) for answer in question.answers]
    return [
        (digest("".join(paragraphs)), any(is_positive(paragraph, answers, rules) for paragraph in paragraphs))
        for paragraphs in _passages(question, rules)
    ]


def is_positive(paragraph: str, answers: list[list[str]], rules: Rules) -> bool:
    """Whether a span of a paragraph has an F1 of at least the threshold with one of the answers (Algorithm 1)."""
    if not answers:
        return False
    told = tokens(paragraph, rules.unit)
    return any(best_span(told, answer, rules.threshold) for answer in answers)


def tokens(text: str, unit: str) -> list[str]:
    """A text's characters without white space, or its words as `segment` finds them: lower case, no punctuation."""
    return _words()(text) if unit == "words" else list("".join(text.split()))


def digest(text: str) -> bytes:
    """A passage's md5, 16 bytes: in hex it is its id, as the ids of the released collection look."""
    return hashlib.md5(text.encode()).digest()


def _passages(question: Question, rules: Rules) -> Iterator[list[str]]:
    for paragraphs in question.documents:
        yield from passages(paragraphs, rules.enough)


@cache
def _words() -> Callable[[str], list[str]]:
    """The segmenter of this process; only words need it."""
    return segmenter()
