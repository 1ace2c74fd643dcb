"""DuReader 2.0 as passage retrieval: what DuReader-retrieval was built from, by the steps of its paper (§2.2.2).

A question's documents are cut into passages of some length, a passage is positive if a span of it matches an answer
that a person wrote, and titles are left out. Questions without a positive passage are dropped, and their passages stay:
somebody else's question may meet them. Equal passages are one, named by its md5.
"""

import hashlib
import json
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, tee
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.artifact import Job
from tandem.data.files import Files
from tandem.data.reading import records, text_of, texts_of
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.data.sources.span_f1 import best_span
from tandem.data.splits import SPLIT, order
from tandem.data.text import segmenter
from tandem.errors import UserError
from tandem.progress import Progress

# ---- tandem.data.sources.dureader2
Located = tuple[str, str, Question]  # split, file:line, question


class Dureader2(Source):
    """Files of `splits: {train: [file, …], dev: [file, …], …}` below `path`, each of JSON lines.

    Parameters: `splits`; `unit` of the span-level F1, `characters` (default) or `words`, which the paper leaves open;
    `threshold`, the F1 that makes a paragraph positive, 0.5; `passage_characters`, the length in characters at which a
    passage is long enough, 256.
    """

    PARAMS = frozenset({"splits", "unit", "threshold", "passage_characters"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._rules, self._workers = _rules(job), int(job.execution.workers or 1)
        splits = job.params.get("splits")
        if not isinstance(splits, dict) or not splits or not all(map(SPLIT.fullmatch, splits)):
            raise UserError(f"splits: {splits!r}; at least one of train, dev, test with a list of files is needed")
        for split, names in splits.items():
            if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
                raise UserError(f"splits.{split}: {names!r}; a list of file names is needed")
        files = Files(job)
        self._files: list[tuple[str, Path]] = [
            (split, files.find(name)) for split in sorted(splits, key=order) for name in splits[split]
        ]
        self.places = {"corpus": "dureader2 passages", "queries": "dureader2 questions"}
        self._collected: Collected | None = None

    def corpus(self) -> Iterator[Passage]:
        """(md5 of its text, "", text) of each different passage, where it first comes."""
        first = iter(self._collection().first_of_equal())
        passages = characters = 0
        for _, _, question in self._questions():
            for text in texts(question, self._rules):
                if next(first):
                    passages += 1
                    characters += len(text)
                    yield digest(text).hex(), "", text
        self.facts |= {"passages": passages, "mean_characters": characters / max(1, passages)}

    def queries(self) -> Iterator[Query]:
        """(question id, text, split) of each question with a positive passage."""
        for query, (text, split) in self._collection().queries.items():
            yield query, text, split

    def qrels(self) -> Iterator[Judgement]:
        """(question id, md5 of the passage, 1, split) of each positive passage of each question."""
        collected = self._collection()
        for query, positives in collected.positives.items():
            for positive in positives:
                yield query, positive.hex(), 1, collected.queries[query][1]

    def answers(self) -> Iterator[Answers]:
        """(question id, its answers) of each question with a positive passage."""
        kept = self._collection().queries
        for _, _, question in self._questions():
            if question.id in kept:
                yield question.id, question.answers

    def _questions(self) -> Iterator[Located]:
        """All questions, file by file."""
        for split, path in self._files:
            for where, question in questions(path):
                yield split, where, question

    def _collection(self) -> Collected:
        """The labels of all questions, found at the first call: this is the long work."""
        if self._collected is None:
            collected = Collected()
            located, again = tee(self._questions())  # as far apart as the processes are ahead
            label = partial(labelled, rules=self._rules)
            results = ordered_map(label, map(itemgetter(2), again), self._workers)
            with Progress("dureader2", 0, "questions") as progress:
                for (split, where, question), passages in zip(located, results, strict=True):
                    collected.add(where, split, question, passages)
                    progress.add(1)
            self.facts["questions_without_positive"] = dict(collected.without)
            self.facts["positives_per_query"] = collected.positives_per_query()
            self._collected = collected
        return self._collected


def _rules(job: Job) -> Rules:
    """The parameters of passages and labels, checked."""
    unit, threshold = job.params.get("unit", UNITS[0]), job.params.get("threshold", 0.5)
    enough = job.params.get("passage_characters", 256)
    if unit not in UNITS:
        raise UserError(f"unit: {unit!r}; allowed are {', '.join(UNITS)}")
    if type(threshold) not in (int, float) or not 0 < threshold <= 1:
        raise UserError(f"threshold: {threshold!r}; a number above 0, at most 1, is allowed")
    if type(enough) is not int or enough < 1:
        raise UserError(f"passage_characters: {enough!r}; a whole number from 1 is allowed")
    return Rules(unit, float(threshold), enough)


# ---- tandem.data.sources.dureader2
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


# ---- tandem.data.sources.dureader2
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


# ---- tandem.data.sources.dureader2
def passages(paragraphs: list[str], enough: int) -> Iterator[list[str]]:
    """The paragraphs of each passage of a document; joined they are its text.

    A document shorter than `enough` is one passage. In another, a paragraph shorter than `enough` takes the next one,
    and the next, until together they are longer than `enough`; any other paragraph is a passage by itself.

    Args:
        paragraphs: the document's, none of them blank.
        enough: in characters.
    """
    together: list[str] = []
    length = 0
    for paragraph in paragraphs:
        together.append(paragraph)
        length += len(paragraph)
        alone = len(together) == 1 and length >= enough
        if alone or length > enough:
            yield together
            together, length = [], 0
    if together:
        yield together


# ---- tandem.data.sources.dureader2
class Collected:
    """Questions with positives, and the digests of all passages.

    Attributes:
        queries: question id → (text, split), of questions with a positive passage.
        positives: question id → digests of its positive passages, each once, in order.
        without: questions without a positive passage, by split.
    """

    def __init__(self) -> None:
        self.queries: dict[str, tuple[str, str]] = {}
        self.positives: dict[str, list[bytes]] = {}
        self.without: Counter[str] = Counter()
        self._places: dict[str, str] = {}
        self._hashes = array("Q")

    def add(self, where: str, split: str, question: Question, passages: list[tuple[bytes, bool]]) -> None:
        """Keep a question and the (digest, whether positive) of its passages.

        Raises:
            UserError: a question id again.
        """
        first = self._places.setdefault(question.id, where)
        if first is not where:
            raise UserError(f"{where}: question_id {question.id} again, first at {first}; every id must be unique")
        self._hashes.extend(int.from_bytes(digest[:8], "little") for digest, _ in passages)
        positives = list(dict.fromkeys(digest for digest, positive in passages if positive))
        if positives:
            self.queries[question.id] = question.text, split
            self.positives[question.id] = positives
        else:
            self.without[split] += 1

    def first_of_equal(self) -> NDArray[np.bool_]:
        """For each passage in order whether no earlier one is the same, by 64 bits of its digest (ten million different
        passages fall together with odds of 1 to 400,000)."""
        _, rows = np.unique(np.frombuffer(self._hashes, np.uint64), return_index=True)
        first = np.zeros(len(self._hashes), np.bool_)
        first[rows] = True
        return first

    def positives_per_query(self) -> dict[str, float]:
        """The mean number of positives of a split's queries."""
        queries: Counter[str] = Counter()
        positives: Counter[str] = Counter()
        for query, (_, split) in self.queries.items():
            queries[split] += 1
            positives[split] += len(self.positives[query])
        return {split: positives[split] / count for split, count in queries.items()}


# ---- tandem.data.sources.dureader2
Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32  # items a process gets at once
AHEAD = 4  # chunks a process may be ahead of the reader


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map(work, items)` by `workers` processes; one worker is this process.

    Unlike the pool's own map it reads no further than a few chunks ahead, so that a stream of any length fits.
    """
    if workers <= 1:
        yield from map(work, items)
        return
    stream = iter(items)
    waiting: deque[Future[list[Result]]] = deque()
    # Spawned, not forked: this process may hold threads of Arrow.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        while chunk := list(islice(stream, CHUNK)):
            waiting.append(pool.submit(_all, work, chunk))
            if len(waiting) >= AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _all(work: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    return [work(item) for item in items]
