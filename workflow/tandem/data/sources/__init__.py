"""Where datasets come from: one small module a format, found by name and imported only when it is used.

A source streams the corpus, the queries and the qrels in an order that is the same on every machine. It may hold what
it likes of queries and qrels, never the whole corpus. To add one, write a module with a subclass of `Source`, name it
in `SOURCES` and give its parameters to the schema.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from tandem.errors import UserError
from tandem.store.job import Job

SOURCES = {
    "beir": "beir:Beir",
    "ir_datasets": "irds:IrDatasets",
    "files": "files:OwnFiles",
    "squad": "squad:Squad",
    "cmedqa2": "cmedqa2:CMedQA2",
    "dureader_retrieval": "dureader_retrieval:DureaderRetrieval",
    "dureader2": "dureader2:Dureader2",
    "pydocs": "pydocs:PyDocs",
    "dpr": "dpr:Dpr",
    "entity_questions": "entity_questions:EntityQuestions",
    "rocketqa": "rocketqa:RocketQa",
    "rocketqa_tsv": "rocketqa_tsv:RocketQaTsv",
    "pair": "pair:Pair",
    "dissimilar": "dissimilar:Dissimilar",
    "reduced": "reduced:Reduced",
    "windows": "windows:Windows",
    "unlabelled": "unlabelled:Unlabelled",
    "union": "union:Union",
}

Passage = tuple[str, str, str]  # document id, title, text
Query = tuple[str, str, str]  # query id, text, split; the split is empty where only qrels or answers tell it
Judgement = tuple[str, str, int, str]  # query id, document id, relevance, split
Answers = tuple[str, list[str]]  # query id, what counts as an answer
Listed = tuple[str, str, int, float | None]  # query id, document id, label, its teacher's score if there is one


class Source(ABC):
    """What a dataset is read from.

    Attributes:
        PARAMS: names of the parameters that this format takes beside those of every dataset.
        places: what to call the corpus and the queries in an error: `corpus` and `queries` → a file or a phrase; a row
            number is added, counted from 1, which is the line number where the format is one record a line.
        facts: counts worth keeping in the manifest; complete once everything has been read.
    """

    PARAMS: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Check parameters and files, a `UserError` if they are wrong; nothing long."""
        self.places: dict[str, str] = {}
        self.facts: dict[str, Any] = {}

    @abstractmethod
    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every passage."""

    @abstractmethod
    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every query; the split is empty where only the qrels tell it."""

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of every judgement; none where only answers tell."""
        yield from ()

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of every question that has some."""
        yield from ()

    def lists(self) -> Iterator[Listed]:
        """(query id, document id, label, score) of the format's own training lists; label > 0 is positive.

        In the format's order; the rows of a query stand together. A positive is also a judgement of `qrels`.
        """
        yield from ()


def source_class(name: str) -> type[Source]:
    """The class of a source by its name in the configuration."""
    if name not in SOURCES:
        raise UserError(f"source: {name!r} is unknown; allowed are {', '.join(SOURCES)}")
    module, attribute = SOURCES[name].split(":")
    found: type[Source] = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return found
