"""DPR's collections: Wikipedia passages, and per split a pool of training passages or a file of questions and answers.

A pool (`biencoder-*.json`) gives judgements of its positives as ir_datasets' dpr-w100 grades them: 2 for the gold
passage (its score is 1000), 1 for another that holds an answer. It also gives training lists: positives, then hard
negatives, then the other negatives. A `.qa.csv` file has no judgements: answers decide what is relevant.
"""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from tandem.data.files import Files
from tandem.data.select import SPLIT
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.dpr_files import Asked, passages, questions
from tandem.errors import UserError
from tandem.store.job import Job

GOLD = 1000.0  # the "score" that marks a gold passage; no score of a retriever
POOL = ("positive_ctxs", "hard_negative_ctxs", "negative_ctxs")


class Question(NamedTuple):
    """What is kept of a question in memory; positives are (passage id, grade)."""

    name: str
    split: str
    text: str
    answers: list[str]
    positives: list[tuple[str, int]]


class Dpr(Source):
    """`corpus` and the files of `questions: {split: name}` in the folder of `path`, plain or gzip.

    A question's id is its split and its place in the file, counted from 0: `dev-17`.
    """

    PARAMS = frozenset({"corpus", "questions"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        told = job.params.get("questions")
        if not isinstance(told, dict) or not told or not all(map(SPLIT.fullmatch, told)):
            raise UserError(f"questions: {told!r}; write {{train: biencoder-nq-train.json, test: nq-test.qa.csv}}")
        files = Files(job)
        self._corpus = files.find(job.params.get("corpus", "psgs_w100.tsv"))
        self._files = {split: files.find(name) for split, name in told.items()}
        self.places = {"corpus": f"{self._corpus} passage", "queries": "question"}

    def corpus(self) -> Iterator[Passage]:
        """(id, title, text) of every passage."""
        return passages(self._corpus)

    def queries(self) -> Iterator[Query]:
        """(id, text, split) of every question."""
        return ((one.name, one.text, one.split) for one in self._questions)

    def answers(self) -> Iterator[Answers]:
        """(id, answers) of every question."""
        return ((one.name, one.answers) for one in self._questions)

    def qrels(self) -> Iterator[Judgement]:
        """(id, passage id, 2 for gold or 1, split) of every positive of the pools."""
        for one in self._questions:
            for doc, grade in one.positives:
                yield one.name, doc, grade, one.split

    def lists(self) -> Iterator[Listed]:
        """(id, passage id, 1 or 0, BM25's score) of the pools; a passage listed twice counts where it stands first."""
        self.facts["contexts_without_id"] = 0
        for split, path in self._files.items():
            for number, asked in enumerate(questions(path)):
                seen: set[str] = set()
                for key in POOL:
                    for doc, score in _contexts(asked, key):
                        if doc is None:
                            self.facts["contexts_without_id"] += 1
                        elif doc not in seen:
                            seen.add(doc)
                            yield f"{split}-{number}", doc, int(key == POOL[0]), None if score == GOLD else score

    @cached_property
    def _questions(self) -> list[Question]:
        """Everything but the negatives, read once: a pool takes minutes."""
        kept = []
        for split, path in self._files.items():
            contexts = named = 0
            for number, asked in enumerate(questions(path)):
                positives: dict[str, int] = {}
                for doc, score in _contexts(asked, POOL[0]):
                    contexts += 1
                    named += doc is not None
                    if doc is not None:
                        positives.setdefault(doc, 2 if score == GOLD else 1)
                kept.append(Question(f"{split}-{number}", split, asked.text, asked.answers, list(positives.items())))
            if contexts and not named:
                raise UserError(f"{path}: no positive_ctxs has a passage_id or psg_id; name the passages of the corpus")
        return kept


def _contexts(asked: Asked, key: str) -> Iterator[tuple[str | None, float | None]]:
    """(passage id, score) of one list of a question's pool; either may be missing."""
    listed = asked.record.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise UserError(f"{asked.where}: {key} is {json.dumps(listed)[:60]}; a list of objects is needed")
    for one in listed:
        name = next((one[id_key] for id_key in ("passage_id", "psg_id") if one.get(id_key) not in (None, "")), None)
        if name is not None and not isinstance(name, str | int):
            raise UserError(f"{asked.where}: {key} names a passage {name!r}; a text or a whole number is needed")
        yield None if name is None else str(name), _score(asked.where, key, one.get("score"))


def _score(where: str, key: str, score: Any) -> float | None:
    """A score, which some files write as text."""
    try:
        return None if score in (None, "") else float(score)
    except (TypeError, ValueError):
        raise UserError(f"{where}: a score of {key} is {str(score)[:40]!r}; a number is needed") from None
