"""Where datasets come from: a class per format, and one per way to derive a dataset from others.

A source streams the corpus, the queries and the qrels in an order that is the same on every machine. It may hold all
queries and qrels in memory, but never the whole corpus. To add a format, write a module of this package with a subclass
of `Source` under `@dataset_format("<name>")`: nothing else lists formats. `entry` of its `__init__` is annotated with
the model of the format's entries. The models of the formats here are in `tandem.config.datasets`, so that planning
imports none of these modules.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tandem.config import datasets
from tandem.config.parsing import read
from tandem.config.references import parameters_of
from tandem.errors import UserError
from tandem.registry import Registry
from tandem.stages.base import Json
from tandem.stages.data import DatasetParams
from tandem.store.job import Job, load

Passage = tuple[str, str, str]  # document id, title, text
# query id, text, split; the split is empty where only qrels or answers decide it
Query = tuple[str, str, str]
Judgement = tuple[str, str, int, str]  # query id, document id, relevance, split
Answers = tuple[str, list[str]]  # query id, the texts that count as an answer
Domain = tuple[str, str]  # document id, domain
# query id, document id, label, its teacher's score if there is one
Listed = tuple[str, str, int, float | None]
DatasetJob = Job[DatasetParams]


class Listing(Protocol):
    """List the files below a folder, by their paths without the ending of their packing."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return these paths, in order."""

    def matching(self, *patterns: str) -> list[str]:
        """Return the names that fit a pattern; `*` does not cross `/`."""

    def path(self, name: str) -> Path:
        """Return the file of a name, packed or not."""

    def head(self, name: str) -> bytes:
        """Return the beginning of a file, unpacked; empty if it cannot be read."""


class Source(ABC):
    """Read the parts of a dataset in its format.

    Attributes:
        places: names of the corpus and the queries in errors: `corpus` and `queries` → a file or a phrase; a row number
            is added, counted from 1, which is the line number where the format has one record a line.
        facts: counts worth keeping in the manifest; complete once everything has been read.
        warnings: lines about what was read that the stage's warnings repeat; complete likewise.
        literal_matches: whether relevance `LITERAL_MATCH` in its judgements is this project's mark, not a grade.
    """

    literal_matches: bool = False

    def __init__(self, job: DatasetJob, entry: Any) -> None:
        """Check the entry's own keys and the files; nothing that takes long."""
        self.places: dict[str, str] = {}
        self.facts: dict[str, Any] = {}
        self.warnings: list[str] = []

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the keys of an entry that reads these files, without `source` and `path`; else None."""
        return None

    @abstractmethod
    def read_corpus(self) -> Iterator[Passage]:
        """Yield (document id, title, text) of every passage."""

    def count(self) -> int | None:
        """Return the number of passages where `read_corpus_from` is fast, else None.

        Jobs can share reading the corpus then.
        """
        return None

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        """Yield the corpus without the passages before a row; used if `count` returns a number."""
        return islice(self.read_corpus(), row, None)

    @abstractmethod
    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, split) of every query; the split is empty where only the qrels decide it."""

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield (query id, document id, relevance, split) of every judgement; empty where answers decide relevance."""
        yield from ()

    def locate_judgement(self, query: str, document: str) -> str:
        """Return the location of the last judgement of a pair, for errors.

        This is `file:line` where judgements are lines of a file.
        """
        return "qrels"

    def read_answers(self) -> Iterator[Answers]:
        """Yield (query id, answers) of every question that has some."""
        yield from ()

    def read_domains(self) -> Iterator[Domain]:
        """Yield (document id, domain) of every passage that has one, in any order."""
        yield from ()

    def read_lists(self) -> Iterator[Listed]:
        """Yield (query id, document id, label, score) of the format's own training lists; label > 0 is positive.

        Rows come in the format's order, those of a query together. A positive is also a judgement of `qrels`.
        """
        yield from ()


dataset_format: Registry[type[Source]] = datasets.dataset_format


def open_source(job: DatasetJob) -> Source:
    """Return the source of a dataset, its own keys validated.

    Raises:
        UserError: an unknown source, an unknown or wrong key, a missing file, or one that has changed since the stage
            was planned.
    """
    name = job.params.source
    values = job.params.model_extra or {}
    if name not in dataset_format:
        raise UserError(
            f"source: {name!r} is unknown; allowed are {', '.join(sorted(dataset_format))}"
        )
    load("extras.unchanged_files:require_planned_files")(job)
    source = dataset_format[name]
    model = parameters_of(datasets.entry_model(source))
    return source(job, read(model, {"source": name, **values}))
