"""Records of DuReader 2.0: a question, its answers by people, and the documents a search engine found for it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.data.reading import records, text_of, texts_of
from tandem.errors import UserError


@dataclass(frozen=True)
class Question:
    """One record.

    Attributes:
        id: question_id as text.
        text: the question.
        answers: the answers that hold text; none where they are secret.
        documents: paragraphs of each document, stripped, without blank ones; titles are left out, as the paper does.
    """

    id: str
    text: str
    answers: list[str]
    documents: list[list[str]]


def questions(path: Path) -> Iterator[tuple[str, Question]]:
    """(`file:line`, question) of each line of a raw or preprocessed file of DuReader 2.0."""
    for where, record in records(path):
        answers = texts_of(where, "answers", record.get("answers", []))
        documents = record.get("documents")
        if not isinstance(documents, list) or not all(isinstance(one, dict) for one in documents):
            raise UserError(f"{where}: documents is {_short(documents)}; a list of objects is needed")
        yield (
            where,
            Question(
                text_of(where, record, "question_id", number=True),
                text_of(where, record, "question"),
                [one for one in answers if one.strip()],
                [_paragraphs(where, document) for document in documents],
            ),
        )


def _paragraphs(where: str, document: dict[str, Any]) -> list[str]:
    """A document's paragraphs; where only their words are told, these are joined."""
    told = document.get("paragraphs")
    if told is None:
        segmented = document.get("segmented_paragraphs")
        if not isinstance(segmented, list):
            raise UserError(f"{where}: a document has neither paragraphs nor segmented_paragraphs; one is needed")
        told = ["".join(texts_of(where, "segmented_paragraphs", words)) for words in segmented]
    stripped = (one.strip() for one in texts_of(where, "paragraphs", told))
    return [one for one in stripped if one]


def _short(value: Any) -> str:
    return json.dumps(value)[:60]
