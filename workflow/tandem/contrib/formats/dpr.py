"""DPR's Wikipedia passages with its own questions.

A pool of training passages (`biencoder-*.json`) yields judgements of its positives, graded as in ir_datasets' dpr-w100:
2 for the gold passage (its score is 1000), 1 for another that holds an answer. It also yields training lists:
positives, then hard negatives, then the other negatives. A `.qa.csv` file has no judgements: answers decide what is
relevant.

TSV columns may be quoted as in csv, with quotes inside them doubled: DPR reads both kinds of TSV by Python's csv, and
so does this module. But a record is one line: a quote left open is a mistake, where csv would continue reading.
"""

import ast
import csv
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tandem.contrib.formats.files_of_splits import require_splits
from tandem.contrib.formats.options import Dpr
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import (
    JsonObject,
    describe_columns,
    is_end,
    iterate_lines,
    parse_score,
    read_text,
    strip_packing,
)
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Judgement,
    Listed,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.errors import UserError
from tandem.extras.records import count_lines, read_items, read_objects, read_texts
from tandem.extras.split_names import match_by_split
from tandem.stages.base import Json

_GOLD = 1000.0  # the "score" that marks a gold passage; not a retriever's score
PASSAGES_FILE = "psgs_w100.tsv"
_POOL = ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs")


class QuestionRecord(NamedTuple):
    """A question's place for errors, text, answers, and the JSON object that it came from (empty for TSV)."""

    where: str
    text: str
    answers: list[str]
    record: JsonObject


class DprQuestion(NamedTuple):
    """A question; positives are (passage id, grade)."""

    id: str
    split: str
    text: str
    answers: list[str]
    positives: list[tuple[str, int]]


class WikipediaQuestions(Source):
    """Questions over the passages of the file `corpus` in the folder of `path`, packed or not."""

    def __init__(self, job: DatasetJob, entry: Any, corpus: str) -> None:
        super().__init__(job, entry)
        self.files = DatasetFiles(job)
        self._corpus = self.files.find(corpus)
        self.places = {"corpus": f"{self._corpus} passage", "queries": "question"}

    @cached_property
    @abstractmethod
    def questions(self) -> list[DprQuestion]:
        """Return all questions, read once."""

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int:
        return count_lines(self._corpus) - _has_header(self._corpus)

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        return read_passages(self._corpus, row)

    def read_queries(self) -> Iterator[Query]:
        return ((question.id, question.text, question.split) for question in self.questions)

    def read_answers(self) -> Iterator[Answers]:
        return ((question.id, question.answers) for question in self.questions)


@dataset_format("dpr")
class DprSource(WikipediaQuestions):
    """Reads `corpus` and the files of `questions: {split: name}` in the folder of `path`, packed or not.

    A question's id is its split and its number in the file, counted from 0: `dev-17`.
    """

    def __init__(self, job: DatasetJob, entry: Dpr) -> None:
        super().__init__(job, entry, entry.corpus)
        questions = require_splits("questions", entry.questions, "a file")
        self._paths = {split: self.files.find(name) for split, name in questions.items()}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the files of questions by split, if the passages of DPR are next to them."""
        names = listing.matching("*.qa.csv", "*biencoder*.json")
        return (
            {"questions": match_by_split(names)}
            if names and listing.matching(PASSAGES_FILE)
            else None
        )

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the positives of the pools: 2 for gold or 1."""
        for question in self.questions:
            for doc, grade in question.positives:
                yield question.id, doc, grade, question.split

    def read_lists(self) -> Iterator[Listed]:
        """Yield the pools, with BM25's scores; of a passage that is listed twice, the first place counts."""
        self.facts["contexts_without_id"] = 0
        for split, path in self._paths.items():
            for number, question in enumerate(read_questions(path)):
                seen: set[str] = set()
                for key in _POOL:
                    for doc, score in _read_contexts(question, key):
                        if doc is None:
                            self.facts["contexts_without_id"] += 1
                        elif doc not in seen:
                            seen.add(doc)
                            yield (
                                f"{split}-{number}",
                                doc,
                                int(key == _POOL[0]),
                                None if score == _GOLD else score,
                            )

    @cached_property
    def questions(self) -> list[DprQuestion]:
        """Return all questions without their negatives; they are read once, since a pool takes minutes."""
        questions = []
        for split, path in self._paths.items():
            contexts = named = 0
            for number, record in enumerate(read_questions(path)):
                positives: dict[str, int] = {}
                for doc, score in _read_contexts(record, _POOL[0]):
                    contexts += 1
                    named += doc is not None
                    if doc is not None:
                        positives.setdefault(doc, 2 if score == _GOLD else 1)
                question = DprQuestion(
                    f"{split}-{number}", split, record.text, record.answers, list(positives.items())
                )
                questions.append(question)
            if contexts and not named:
                raise UserError(
                    f"{path}: no positive_ctxs has a passage_id or psg_id; name the passages of the corpus"
                )
        return questions


def _read_contexts(question: QuestionRecord, key: str) -> Iterator[tuple[str | None, float | None]]:
    """Yield (passage id, score) of one list of a question's pool; either may be missing."""
    for context in read_objects(question.where, key, question.record.get(key) or []):
        ids = (
            context[id_key]
            for id_key in ("passage_id", "psg_id")
            if context.get(id_key) not in (None, "")
        )
        name = next(ids, None)
        if not isinstance(name, str | int | None):
            raise UserError(
                f"{question.where}: {key} names a passage {name!r}; a text or a whole number is needed"
            )
        score = context.get("score")
        # Some files write the score as text.
        value = (
            None
            if score in (None, "")
            else parse_score(question.where, f"a score of {key}", str(score))
        )
        yield None if name is None else str(name), value


def read_passages(path: Path, skipped: int = 0) -> Iterator[Passage]:
    """Yield (id, title, text) of each line `id, text, title` of a file like psgs_w100.tsv, after header and `skipped`.

    Double quotes at both ends of the text are removed, as DPR's `CsvCtxSrc` does in what it indexes; the title keeps
    its quotes.
    """
    numbered = iterate_lines(path, skipped=skipped + _has_header(path))
    for number, line in numbered:
        if not line and is_end(line, numbered):
            return
        row = _split_columns(f"{path}:{number}", line, "id, text, title", 3)
        yield row[0], row[2], row[1].strip('"')


def _has_header(path: Path) -> bool:
    return next((line.partition("\t")[0] == "id" for _, line in iterate_lines(path)), False)


def read_questions(path: Path) -> Iterator[QuestionRecord]:
    """Yield every question of a file, in order: a JSON array if it is named `.json`, packed or not, else `.qa.csv`."""
    if strip_packing(path.name).endswith(".json"):
        for where, record in read_items(path):
            text = read_text(where, record, "question")
            answers = read_texts(where, "answers", record.get("answers") or [])
            yield QuestionRecord(where, text, answers, record)
    else:
        numbered = iterate_lines(path)
        for number, line in numbered:
            if not line and is_end(line, numbered):
                return
            where = f"{path}:{number}"
            text, literal = _split_columns(where, line, "question, list of answers", 2)
            try:
                with warnings.catch_warnings():
                    # unknown escapes (`\\s` in a pattern) remain unchanged
                    warnings.simplefilter("ignore")
                    answers = ast.literal_eval(literal.strip())
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                error = f"{where}: the answers {literal[:60]!r} are not a list; write ['first', 'second']"
                raise UserError(error) from None
            yield QuestionRecord(where, text, read_texts(where, "answers", answers), {})


def _split_columns(where: str, line: str, what: str, count: int) -> list[str]:
    """Return the tab-separated columns of a line, with csv quoting undone."""
    row = line.split("\t")
    if '"' in line:
        # The empty second line is read only if a quote in the first is still open.
        reader = csv.reader((line, ""), delimiter="\t")
        try:
            row = next(reader)
        except csv.Error as error:
            raise UserError(f"{where}: {error}; quote columns as csv does") from None
        if reader.line_num > 1:
            raise UserError(
                f"{where}: a quoted column is not closed; a record is one line, with quotes doubled inside"
            )
    if len(row) != count:
        raise UserError(
            f"{where}: {describe_columns(row, 'tabs')}; a line is {what}: {count} columns"
        )
    return row
