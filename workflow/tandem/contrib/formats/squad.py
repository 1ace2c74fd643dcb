"""SQuAD's JSON: SQuAD, XQuAD, DRCD and CMRC 2018, in any of three layouts.

    SQuAD, XQuAD    {"data": [{"title", "paragraphs": [{"context",
                      "qas": [{"id", "question", "answers": [{"text"}]}]}]}]}
    DRCD, CMRC      the same, and every paragraph has an "id"
    CMRC, original  [{"title", "context_id", "context_text",
                      "qas": [{"query_id", "query_text", "answers": ["…"]}]}]

A passage is a paragraph, and its title is the article's. Equal ones (title and text) are one passage, whatever files
they are in. Its id is the paragraph's own (DRCD, CMRC), or else a digest of title and text, which does not depend on
the order of files or paragraphs. The one relevant passage of a question is the paragraph it was written for.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)

from tandem.contrib.formats.files_of_splits import find_by_split
from tandem.contrib.formats.options import Squad
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import iterate_lines
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Judgement,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.errors import UserError
from tandem.extras.split_names import match_by_split
from tandem.stages.base import Json

_LONGEST_FILE = 512 << 20  # bytes of a line: often the whole file is one, 40 MiB in SQuAD 2.0


@dataset_format("squad")
class SquadSource(Source):
    """Reads `files_of: {split: file}`, and perhaps `queries_of: {split: file}` with the questions in another language.

    A split in `queries_of` has the questions of that file and no others. Their paragraphs and answers are those of
    `files_of`, by the questions' ids.
    """

    def __init__(self, job: DatasetJob, entry: Squad) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._files = find_by_split("files_of", entry.files_of, files)
        self._translated = find_by_split("queries_of", entry.queries_of, files)
        if not self._files:
            raise UserError(
                "files_of: none; a file of at least one split is needed, as in files_of: {test: dev.json}"
            )
        for split in self._translated.keys() - self._files.keys():
            raise UserError(
                f"queries_of.{split}: files_of has no {split}; name the file with its paragraphs there"
            )
        several = len(set(self._files.values())) > 1
        place = files.folder if several else next(iter(self._files.values()))
        self.places = {"corpus": f"{place} paragraph", "queries": f"{place} question"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the files by split, if any JSON file has contexts; a file with documents has another format."""
        heads = {name: listing.head(name) for name in listing.matching("*.json")}
        names = [
            name
            for name, head in heads.items()
            if b'"context' in head and b'"documents"' not in head
        ]
        return {"files_of": match_by_split(names)} if names else None

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the paragraphs of all files; equal ones once."""
        known: set[str] = set()
        self.facts |= {"repeated_paragraphs": 0, "unanswerable_questions": 0}
        for _, doc, title, paragraph in self._paragraphs():
            key = hash_paragraph(title, paragraph.text)
            self.facts["repeated_paragraphs"] += key in known
            self.facts["unanswerable_questions"] += sum(
                question.is_impossible for question in paragraph.qas
            )
            if key not in known:
                known.add(key)
                yield doc, title, paragraph.text

    def read_queries(self) -> Iterator[Query]:
        for split, path in self._files.items():
            for question in _read_questions(self._translated.get(split, path)):
                yield question.id, question.text, split

    def read_qrels(self) -> Iterator[Judgement]:
        for split, doc, _, paragraph in self._paragraphs():
            for question in paragraph.questions:
                if question.id in self._ids[split]:
                    yield question.id, doc, 1, split

    def read_answers(self) -> Iterator[Answers]:
        for split, path in self._files.items():
            for question in _read_questions(path):
                if question.answers and question.id in self._ids[split]:
                    yield question.id, list(dict.fromkeys(question.answers))

    def _paragraphs(self) -> Iterator[tuple[str, str, str, "Paragraph"]]:
        """Yield (split, passage id, title, paragraph) of every paragraph."""
        ids: dict[str, str] = {}
        for split, path in self._files.items():
            for title, paragraph in read_paragraphs(path):
                key = hash_paragraph(title, paragraph.text)
                yield split, ids.setdefault(key, paragraph.id or key), title, paragraph

    @cached_property
    def _ids(self) -> dict[str, set[str]]:
        """Return split → ids of its questions."""
        ids = {split: _read_ids(path) for split, path in self._files.items()}
        for split, path in self._translated.items():
            known = ids[split]
            ids[split] = _read_ids(path)
            unknown = min(ids[split] - known, default=None)
            if unknown:
                error = f"{path}: question {unknown} is not in {self._files[split]}"
                raise UserError(f"{error}; every question needs its paragraph there")
        return ids


Id = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
SquadAnswer = Annotated[
    str, BeforeValidator(lambda value: value.get("text") if isinstance(value, dict) else value)
]


class SquadQuestion(BaseModel):
    """A question; `is_impossible` if its paragraph, by design, does not answer it (SQuAD 2.0)."""

    id: Id = Field(validation_alias=AliasChoices("id", "query_id"))
    text: str = Field(validation_alias=AliasChoices("question", "query_text"))
    answers: list[SquadAnswer] = []
    is_impossible: bool = False


class Paragraph(BaseModel):
    """A paragraph; `id` is empty if the file has none."""

    id: Id = Field("", validation_alias=AliasChoices("id", "context_id"))
    text: str = Field(validation_alias=AliasChoices("context", "context_text"))
    qas: list[SquadQuestion]

    @property
    def questions(self) -> list[SquadQuestion]:
        """Return the questions that the paragraph answers."""
        return [question for question in self.qas if not question.is_impossible]


class Article(BaseModel):
    """An article; in CMRC's original layout it is its only paragraph."""

    title: str | None = None
    paragraphs: list[Paragraph]

    @model_validator(mode="before")
    @classmethod
    def _from_paragraph(cls, value: Any) -> Any:
        return (
            {"title": value.get("title"), "paragraphs": [value]}
            if isinstance(value, dict) and "qas" in value
            else value
        )


class Document(BaseModel):
    """A file; in CMRC's original layout it is the list of articles."""

    data: list[Article]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        return {"data": value} if isinstance(value, list) else value


def hash_paragraph(title: str, text: str) -> str:
    """Return 16 hex digits that paragraphs of equal title and text share."""
    return hashlib.sha1(f"{title}\n{text}".encode()).hexdigest()[:16]


def _read_questions(path: Path) -> Iterator[SquadQuestion]:
    empty = True
    for _, paragraph in read_paragraphs(path):
        yield from paragraph.questions
        empty = empty and not paragraph.questions
    if empty:
        raise UserError(
            f"{path}: holds no question; name a file with questions, or leave this one out"
        )


def _read_ids(path: Path) -> set[str]:
    return {question.id for question in _read_questions(path)}


def read_paragraphs(path: Path) -> Iterator[tuple[str, Paragraph]]:
    """Yield (title, paragraph) of a file in its order; a `UserError` if it is not JSON, or has none of the layouts."""
    try:
        document = Document.model_validate_json(
            "\n".join(line for _, line in iterate_lines(path, _LONGEST_FILE))
        )
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        if detail["type"] == "json_invalid":
            raise UserError(f"{path}: {detail['msg']}; mend it or fetch the file again") from None
        place = "".join(
            f"[{key}]" if isinstance(key, int) else f".{key}" for key in detail["loc"]
        ).removeprefix(".")
        what = (
            "missing"
            if detail["type"] == "missing"
            else f"{json.dumps(detail['input'])[:40]}; {detail['msg']}"
        )
        raise UserError(f"{path}: {place} is {what}; see docs/formats.md") from None
    for article in document.data:
        for paragraph in article.paragraphs:
            yield article.title or "", paragraph
