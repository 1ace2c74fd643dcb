"""SQuAD's JSON: SQuAD, XQuAD, DRCD and CMRC 2018, in any of three layouts.

    SQuAD, XQuAD    {"data": [{"title", "paragraphs": [{"context",
                      "qas": [{"id", "question", "answers": [{"text"}]}]}]}]}
    DRCD, CMRC      the same, and every paragraph has an "id"
    CMRC, original  [{"title", "context_id", "context_text",
                      "qas": [{"query_id", "query_text", "answers": ["…"]}]}]

A passage is a paragraph and its title the article's; equal ones (title and text) are one passage, whatever files they
stand in. Its id is the paragraph's own (DRCD, CMRC) or else a digest of title and text, which does not depend on the
order of files or paragraphs. The one relevant passage of a question is the paragraph it was written on.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tandem.config import datasets
from tandem.data.files import Files, files_by_split
from tandem.data.reading import JsonObject, clean, lines, text_of
from tandem.data.sources import Answers, DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.errors import UserError

LONGEST = 512 << 20  # bytes of a line: the whole file often is one, 40 MiB in SQuAD 2.0


@dataset_format("squad")
class Squad(Source):
    """`files_of: {split: file}`, and perhaps `queries_of: {split: file}` with the questions in another language.

    A split of `queries_of` asks the questions of that file and no others; their paragraphs, found by the question's
    id, and their answers are those of `files_of`.
    """

    def __init__(self, job: DatasetJob, entry: datasets.Squad) -> None:
        super().__init__(job, entry)
        files = Files(job)
        self._files = files_by_split("files_of", entry.files_of, files)
        self._translated = files_by_split("queries_of", entry.queries_of, files)
        if not self._files:
            raise UserError("files_of: none; a file of at least one split is needed, as in files_of: {test: dev.json}")
        for split in self._translated.keys() - self._files.keys():
            raise UserError(f"queries_of.{split}: files_of has no {split}; name the file with its paragraphs there")
        several = len(set(self._files.values())) > 1
        place = files.folder if several else next(iter(self._files.values()))
        self.places = {"corpus": f"{place} paragraph", "queries": f"{place} question"}

    def corpus(self) -> Iterator[Passage]:
        known: set[str] = set()
        self.facts |= {"repeated_paragraphs": 0, "unanswerable_questions": 0}
        for _, doc, paragraph in self._paragraphs():
            self.facts["repeated_paragraphs"] += paragraph.digest in known
            self.facts["unanswerable_questions"] += paragraph.unanswerable
            if paragraph.digest not in known:
                known.add(paragraph.digest)
                yield doc, paragraph.title, paragraph.text

    def queries(self) -> Iterator[Query]:
        for split, path in self._files.items():
            for question in _questions(self._translated.get(split, path)):
                yield question.id, question.text, split

    def qrels(self) -> Iterator[Judgement]:
        for split, doc, paragraph in self._paragraphs():
            for question in paragraph.questions:
                if question.id in self._ids[split]:
                    yield question.id, doc, 1, split

    def answers(self) -> Iterator[Answers]:
        for split, path in self._files.items():
            for question in _questions(path):
                if question.answers and question.id in self._ids[split]:
                    yield question.id, question.answers

    def _paragraphs(self) -> Iterator[tuple[str, str, "Paragraph"]]:
        """(split, document id, paragraph) of every paragraph of every split's file; equal ones share an id."""
        ids: dict[str, str] = {}
        for split, path in self._files.items():
            for paragraph in read_paragraphs(path):
                yield split, ids.setdefault(paragraph.digest, paragraph.own_id or paragraph.digest), paragraph

    @cached_property
    def _ids(self) -> dict[str, set[str]]:
        """Split → ids of the questions that it asks; a `UserError` on one without a paragraph in `files_of`."""
        ids = {split: {question.id for question in _questions(path)} for split, path in self._files.items()}
        for split, path in self._translated.items():
            known, ids[split] = ids[split], set()
            for question in _questions(path):
                if question.id not in known:
                    error = f"{question.where}: question {question.id} is not in {self._files[split]}"
                    raise UserError(f"{error}; every question needs its paragraph there")
                ids[split].add(question.id)
        return ids


@dataclass(frozen=True)
class Question:
    """A question with its different answers in their order; `where` is its place in the file, for errors."""

    where: str
    id: str
    text: str
    answers: list[str]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph with its questions; `own_id` is its id in the file, or empty.

    `unanswerable` counts questions that it does not answer by design (`is_impossible` of SQuAD 2.0): they are left out.
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


def _questions(path: Path) -> Iterator[Question]:
    """The questions of a file; a `UserError` if it has none."""
    empty = True
    for paragraph in read_paragraphs(path):
        yield from paragraph.questions
        empty = empty and not paragraph.questions
    if empty:
        raise UserError(f"{path}: holds no question; name a file with questions, or leave this one out")


def read_paragraphs(path: Path) -> Iterator[Paragraph]:
    """The paragraphs of a file in its order; a `UserError` if it is no JSON, or has none of the layouts."""
    try:
        document = json.loads("\n".join(line for _, line in lines(path, LONGEST)))
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}: not valid JSON, {error.msg} at column {error.colno}"
        raise UserError(f"{where}; mend it or fetch the file again") from None
    except RecursionError:
        raise UserError(f"{path}: JSON nested too deep; SQuAD's form is needed, articles of paragraphs") from None
    articles = document if isinstance(document, dict) else {"data": document}
    for where, article in _objects(f"{path}: ", articles, "data"):
        title = text_of(where, article, "title") if article.get("title") else ""
        within = [(where, article)] if "qas" in article else _objects(f"{where}.", article, "paragraphs")
        for place, record in within:
            yield _paragraph(place, title, record)


def _paragraph(where: str, title: str, record: JsonObject) -> Paragraph:
    own_id = _name(record, "id", "context_id")
    questions = list(_objects(f"{where}.", record, "qas"))
    answerable = [(place, question) for place, question in questions if question.get("is_impossible") is not True]
    return Paragraph(
        own_id=text_of(where, record, own_id, number=True) if own_id in record else "",
        title=title,
        text=text_of(where, record, _name(record, "context", "context_text")),
        questions=[_question(place, question) for place, question in answerable],
        unanswerable=len(questions) - len(answerable),
    )


def _question(where: str, record: JsonObject) -> Question:
    answers = record.get("answers", [])
    if not isinstance(answers, list):
        raise UserError(f"{where}: answers is no list; a list of texts or of objects with a text is needed")
    texts = [
        clean(where, "answers", answer)
        if isinstance(answer, str)
        else text_of(f"{where}.answers[{number}]", _object(where, answer), "text")
        for number, answer in enumerate(answers)
    ]
    query = text_of(where, record, _name(record, "id", "query_id"), number=True)
    text = text_of(where, record, _name(record, "question", "query_text"))
    return Question(where, query, text, list(dict.fromkeys(texts)))


def _objects(prefix: str, record: JsonObject, key: str) -> Iterator[tuple[str, JsonObject]]:
    """(place, object) of each element of a list of objects."""
    values = record.get(key)
    if not isinstance(values, list):
        raise UserError(f"{prefix}{key} is {json.dumps(values)[:40]}; a list of objects is needed, as in SQuAD's JSON")
    for number, value in enumerate(values):
        where = f"{prefix}{key}[{number}]"
        yield where, _object(where, value)


def _object(where: str, value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise UserError(f"{where} is {json.dumps(value)[:40]}; an object is needed, as in SQuAD's JSON")
    return value


def _name(record: JsonObject, usual: str, other: str) -> str:
    """The name of a field in this layout."""
    return other if other in record else usual
