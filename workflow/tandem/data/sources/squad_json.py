"""The paragraphs and questions of a SQuAD-format file, in any of three layouts.

SQuAD, XQuAD    {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text"}]}]}]}]}
DRCD, CMRC      the same, and every paragraph has an "id"
CMRC, original  [{"title", "context_id", "context_text", "qas": [{"query_id", "query_text", "answers": ["…"]}]}]
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.data.reading import clean, lines, text_of
from tandem.errors import UserError

LONGEST = 512 << 20  # bytes of a line: the whole file often is one, 40 MiB in SQuAD 2.0


@dataclass(frozen=True)
class Question:
    """A question with its different answers in their order; `where` is its place in the file, for errors."""

    where: str
    id: str
    text: str
    answers: list[str]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph with its questions.

    Attributes:
        own_id: the id that the file gives it, or nothing.
        title: of the article.
        text: its text.
        questions: those that it answers.
        unanswerable: number of questions that it does not answer by design (`is_impossible` of SQuAD 2.0), left out.
    """

    own_id: str
    title: str
    text: str
    questions: list[Question]
    unanswerable: int

    @property
    def digest(self) -> str:
        """16 hex digits that paragraphs of equal title and text share."""
        return hashlib.sha1(f"{self.title}\n{self.text}".encode()).hexdigest()[:16]


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """The paragraphs of a file in its order; a `UserError` if it is no JSON, or not of one of the layouts."""
    document = _document(path)
    articles = document if isinstance(document, dict) else {"data": document}
    for where, article in _objects(f"{path}: ", articles, "data"):
        title = text_of(where, article, "title") if article.get("title") else ""
        within = [(where, article)] if "qas" in article else _objects(f"{where}.", article, "paragraphs")
        for place, told in within:
            yield _paragraph(place, title, told)


def _paragraph(where: str, title: str, told: dict[str, Any]) -> Paragraph:
    """One paragraph."""
    own = _name(told, "id", "context_id")
    asked = list(_objects(f"{where}.", told, "qas"))
    answerable = [(place, one) for place, one in asked if one.get("is_impossible") is not True]
    return Paragraph(
        own_id=text_of(where, told, own, number=True) if own in told else "",
        title=title,
        text=text_of(where, told, _name(told, "context", "context_text")),
        questions=[_question(place, one) for place, one in answerable],
        unanswerable=len(asked) - len(answerable),
    )


def _question(where: str, asked: dict[str, Any]) -> Question:
    """One question."""
    answers = asked.get("answers", [])
    if not isinstance(answers, list):
        raise UserError(f"{where}: answers is no list; a list of texts or of objects with a text is needed")
    texts = [
        clean(where, "answers", one)
        if isinstance(one, str)
        else text_of(f"{where}.answers[{number}]", _object(where, one), "text")
        for number, one in enumerate(answers)
    ]
    name = text_of(where, asked, _name(asked, "id", "query_id"), number=True)
    return Question(
        where, name, text_of(where, asked, _name(asked, "question", "query_text")), list(dict.fromkeys(texts))
    )


def _document(path: Path) -> Any:
    """The JSON of a file that is one document."""
    try:
        return json.loads("\n".join(line for _, line in lines(path, LONGEST)))
    except json.JSONDecodeError as error:
        found = f"{path}:{error.lineno}: not valid JSON, {error.msg} at column {error.colno}"
        raise UserError(f"{found}; mend it or fetch the file again") from None
    except RecursionError:
        raise UserError(f"{path}: JSON nested too deep; SQuAD's form is needed, articles of paragraphs") from None


def _objects(prefix: str, record: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of each element of a list of objects."""
    told = record.get(key)
    if not isinstance(told, list):
        raise UserError(f"{prefix}{key} is {json.dumps(told)[:40]}; a list of objects is needed, as in SQuAD's JSON")
    for number, one in enumerate(told):
        where = f"{prefix}{key}[{number}]"
        yield where, _object(where, one)


def _object(where: str, value: Any) -> dict[str, Any]:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise UserError(f"{where} is {json.dumps(value)[:40]}; an object is needed, as in SQuAD's JSON")
    return value


def _name(record: dict[str, Any], usual: str, other: str) -> str:
    """The name that a field has here."""
    return other if other in record else usual
