"""DuReader 2.0 as passage retrieval: the source of DuReader-retrieval, processed by the steps of its paper (§2.2.2).

A question's documents are cut into passages of some length. A passage is positive if a span of it matches an answer
that a person wrote. Titles are left out. Questions without a positive passage are dropped, but their passages stay:
another question may retrieve them. Equal passages become one, with its md5 as name.
"""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import tee
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tandem.cluster.progress import Progress
from tandem.cluster.work import map_in_order
from tandem.contrib.formats.files_of_splits import list_by_split, require_splits
from tandem.contrib.formats.options import DuReader2 as Entry
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import JsonObject, read_records, read_text
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
from tandem.data.text import load_segmenter
from tandem.errors import UserError
from tandem.extras.records import read_objects, read_texts
from tandem.extras.split_names import group_by_split
from tandem.stages.base import Json


class DuReaderQuestion(NamedTuple):
    """A question, its answers by people (none where they are secret), and a search engine's documents.

    Documents are lists of stripped, non-blank paragraphs, without titles.
    """

    id: str
    text: str
    answers: list[str]
    documents: list[list[str]]


@dataset_format("dureader2")
class DuReader2Source(Source):
    """Reads the files of `splits: {train: [file, …], dev: [file, …], …}` below `path`, each of JSON lines.

    The paper does not state whether a token of the span-level F1 is a character or a word (`unit`). Of ten released
    positives whose paragraphs and answers are available, ten reach the threshold of 0.5 in characters, six in words.
    """

    def __init__(self, job: DatasetJob, entry: Entry) -> None:
        super().__init__(job, entry)
        self._entry = entry
        self._workers = job.execution.workers or 1
        splits = require_splits("splits", entry.splits, "a list of files")
        for split, names in splits.items():
            if not names:
                raise UserError(f"splits.{split}: {names!r}; a list of file names is needed")
        self._files = list_by_split(splits, DatasetFiles(job))
        self.places = {"corpus": "dureader2 passages", "queries": "dureader2 questions"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        names = [
            name for name in listing.matching("*.json") if b'"documents"' in listing.head(name)
        ]
        return {"splits": group_by_split(names)} if names else None

    def read_corpus(self) -> Iterator[Passage]:
        """Yield passages joined from the paragraphs of every document; equal ones once."""
        first = iter(~pd.Index(np.frombuffer(self._labels.hashes, np.uint64)).duplicated())
        passages = characters = 0
        for _, _, question in self._questions():
            for paragraphs in cut_passages(question, self._entry):
                if next(first):
                    text = "".join(paragraphs)
                    passages += 1
                    characters += len(text)
                    yield hash_passage(text).hex(), "", text
        self.facts |= {"passages": passages, "mean_characters": characters / max(1, passages)}

    def read_queries(self) -> Iterator[Query]:
        return ((query, text, split) for query, (text, split) in self._labels.queries.items())

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield (question id, md5 of the passage, 1, split) of each positive passage of each question."""
        for query, positives in self._labels.positives.items():
            for positive in positives:
                yield query, positive.hex(), 1, self._labels.queries[query][1]

    def read_answers(self) -> Iterator[Answers]:
        for _, _, question in self._questions():
            if question.id in self._labels.queries:
                yield question.id, question.answers

    def _questions(self) -> Iterator[tuple[str, str, DuReaderQuestion]]:
        for split, path in self._files:
            for where, question in _read_questions(path):
                yield split, where, question

    @cached_property
    def _labels(self) -> "Labels":
        """Return the labels of all questions: this takes long."""
        labels = Labels()
        located, again = tee(self._questions())  # apart by what the processes took
        questions = (question for _, _, question in again)
        results = map_in_order(partial(label, entry=self._entry), questions, self._workers)
        with Progress("dureader2", 0, "questions") as progress:
            for (split, where, question), passages in zip(located, results, strict=True):
                labels.add(where, split, question, passages)
                progress.add(1)
        self.facts["questions_without_positive"] = dict(labels.without)
        self.facts["positives_per_query"] = labels.positives_per_query()
        return labels


def _read_questions(path: Path) -> Iterator[tuple[str, DuReaderQuestion]]:
    """Yield (`file:line`, question) of each line of a raw or preprocessed file of DuReader 2.0."""
    for where, record in read_records(path):
        answers = read_texts(where, "answers", record.get("answers", []))
        documents = read_objects(where, "documents", record.get("documents"))
        query = read_text(where, record, "question_id", number=True)
        text = read_text(where, record, "question")
        answers = [answer for answer in answers if answer.strip()]
        yield (
            where,
            DuReaderQuestion(
                query, text, answers, [_read_paragraphs(where, document) for document in documents]
            ),
        )


def _read_paragraphs(where: str, document: JsonObject) -> list[str]:
    """Return a document's paragraphs; if it has only their words, these are joined."""
    paragraphs = document.get("paragraphs")
    if paragraphs is None:
        segmented = document.get("segmented_paragraphs")
        if not isinstance(segmented, list):
            raise UserError(
                f"{where}: a document has neither paragraphs nor segmented_paragraphs; one is needed"
            )
        paragraphs = [
            "".join(read_texts(where, "segmented_paragraphs", words)) for words in segmented
        ]
    stripped = (paragraph.strip() for paragraph in read_texts(where, "paragraphs", paragraphs))
    return [paragraph for paragraph in stripped if paragraph]


def cut_passages(question: DuReaderQuestion, entry: Entry) -> Iterator[list[str]]:
    """Yield the paragraphs of each passage of a question's documents, in order; equal passages are repeated."""
    for paragraphs in question.documents:
        yield from join_paragraphs(paragraphs, entry.passage_characters)


def join_paragraphs(paragraphs: list[str], enough: int) -> Iterator[list[str]]:
    """Yield the paragraphs of each passage of a document, joined to some length; together they are its text.

    A document shorter than `enough` is one passage. In others, a paragraph shorter than `enough` takes the next one,
    and the next, until together they are longer than `enough`; any other paragraph is a passage by itself. This follows
    DuReader-retrieval §2.2.2. Details that its text leaves open are taken from the released passages: paragraphs are
    joined without a space, every character counts (also punctuation and white space), and the rest is a passage.
    """
    together: list[str] = []
    length = 0
    for paragraph in paragraphs:
        together.append(paragraph)
        length += len(paragraph)
        if length > enough or (len(together) == 1 and length == enough):
            yield together
            together = []
            length = 0
    if together:
        yield together


def label(question: DuReaderQuestion, entry: Entry) -> list[tuple[bytes, bool]]:
    """Return (digest, whether it is positive) of each passage of a question; it is if one of its paragraphs is."""
    answers = [split_tokens(answer, entry.unit) for answer in question.answers]
    labels = []
    for paragraphs in cut_passages(question, entry):
        has_answer = any(is_positive(paragraph, answers, entry) for paragraph in paragraphs)
        labels.append((hash_passage("".join(paragraphs)), has_answer))
    return labels


def is_positive(paragraph: str, answers: list[list[str]], entry: Entry) -> bool:
    """Return whether a span of a paragraph reaches the threshold of F1 with one of the answers (Algorithm 1)."""
    if not answers:
        return False
    paragraph_tokens = split_tokens(paragraph, entry.unit)
    return any(find_best_span(paragraph_tokens, answer, entry.threshold) for answer in answers)


def split_tokens(text: str, unit: str) -> list[str]:
    """Return a text's characters without white space, or its words by `load_segmenter`: lower case, no punctuation."""
    return load_segmenter()(text) if unit == "words" else list("".join(text.split()))


def hash_passage(text: str) -> bytes:
    """Return a passage's md5, 16 bytes; in hex it is the passage's id, in the form of the released collection's ids."""
    return hashlib.md5(text.encode()).digest()


class Labels:
    """Questions with positives, and a hash of every passage, to recognise repeated passages.

    Attributes:
        queries: question id → (text, split), for questions with a positive passage.
        positives: question id → digests of its positive passages, each once, in order.
        without: number of questions without a positive passage, by split.
        hashes: 64 bits of each passage's digest, in order (two of ten million different passages coincide with odds of
            1 to 400,000).
    """

    def __init__(self) -> None:
        self.queries: dict[str, tuple[str, str]] = {}
        self.positives: dict[str, list[bytes]] = {}
        self.without: Counter[str] = Counter()
        self.hashes = array("Q")
        self._places: dict[str, str] = {}

    def add(
        self, where: str, split: str, question: DuReaderQuestion, passages: list[tuple[bytes, bool]]
    ) -> None:
        """Add a question and the (digest, whether positive) of its passages; a `UserError` on a repeated id."""
        first = self._places.setdefault(question.id, where)
        if first is not where:
            raise UserError(
                f"{where}: question_id {question.id} again, first at {first}; every id must be unique"
            )
        self.hashes.extend(int.from_bytes(digest[:8], "little") for digest, _ in passages)
        positives = list(dict.fromkeys(digest for digest, positive in passages if positive))
        if positives:
            self.queries[question.id] = question.text, split
            self.positives[question.id] = positives
        else:
            self.without[split] += 1

    def positives_per_query(self) -> dict[str, float]:
        """Return split → mean number of positives per query."""
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for query, (_, split) in self.queries.items():
            counts[split].append(len(self.positives[query]))
        return {split: sum(of_queries) / len(of_queries) for split, of_queries in counts.items()}


SPANS_AT_ONCE = 1 << 18  # spans that are scored at once: some MiB
_FAR = 1 << 40  # a position that no paragraph reaches
Places = NDArray[np.int64]


class Span(NamedTuple):
    """Tokens `start` to `end` (exclusive) of a paragraph and their F1 against an answer."""

    start: int
    end: int
    f1: float


def find_best_span(
    paragraph: Sequence[str], answer: Sequence[str], threshold: float
) -> Span | None:
    """Return the span of a paragraph's tokens with the highest F1 against an answer's.

    Of equal ones, the first is taken, then the shortest; None if none reaches the threshold, which is above 0.

    This is DuReader-retrieval's Algorithm 1; its label is whether there is such a span. A span of length L and an
    answer of length n that share o tokens, counted as multisets, have F1 = 2 o / (L + n). The best span starts and ends
    with a token of the answer: anything else at its ends only makes it longer. The token at place j counts in a span
    [i, j] unless the c-th token of its kind before it, c being its count in the answer, is also in the span. So o(i, j)
    is the number of places k in [i, j] with spent(k) < i. This gives every F1 by one cumulative sum per start.
    """
    places, spent = _place_tokens(paragraph, answer)
    shared = int((spent < 0).sum())
    # No span shares more tokens than the paragraph does, or is shorter than the number it shares.
    if shared == 0 or 2 * shared / (shared + len(answer)) < threshold:
        return None
    # follows from F1 ≥ threshold; 1 more for the rounding of floats
    longest = int(2 * shared / threshold) - len(answer) + 1
    width = int((np.searchsorted(places, places + longest) - np.arange(len(places))).max())
    best = Span(0, 0, 0.0)
    rows = max(1, SPANS_AT_ONCE // width)
    for row in range(0, len(places), rows):
        span = _find_best(places, spent, row, rows, width, len(answer))
        best = max(best, span, key=lambda candidate: candidate.f1)
    return best if best.f1 >= threshold else None


def _place_tokens(paragraph: Sequence[str], answer: Sequence[str]) -> tuple[Places, Places]:
    """Return the places of the answer's tokens in a paragraph, and `spent` of each.

    It is -1 where there is no earlier token that must be outside the span.
    """
    counts = Counter(answer)
    before: dict[str, list[int]] = defaultdict(list)
    places = []
    spent = []
    for place, token in enumerate(paragraph):
        count = counts.get(token)
        if not count:
            continue
        same = before[token]
        places.append(place)
        spent.append(same[-count] if len(same) >= count else -1)
        same.append(place)
    return np.array(places, np.int64), np.array(spent, np.int64)


def _find_best(places: Places, spent: Places, row: int, rows: int, width: int, length: int) -> Span:
    """Return the best span that starts at one of `rows` places from `row` on and spans at most `width` of them."""
    starts = places[row : row + rows, None]
    # Each start has a window of `width` places, beginning with its own; windows are padded after the last place.
    needed = len(starts) + width - 1
    part = slice(row, row + needed)
    padding = (0, needed - len(places[part]))
    ends = sliding_window_view(np.pad(places[part], padding, constant_values=_FAR), width)
    limits = sliding_window_view(np.pad(spent[part], padding, constant_values=_FAR), width)
    shared = np.cumsum(limits < starts, axis=1)
    lengths = ends - starts + 1
    f1 = 2 * shared / (lengths + length)
    start, end = divmod(int(f1.argmax()), width)
    return Span(int(starts[start, 0]), int(ends[start, end]) + 1, float(f1[start, end]))
