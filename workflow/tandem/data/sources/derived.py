"""Datasets made of others: their rows unchanged, one's passages with another's queries, unions, and windows."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from tandem.config.base import Items
from tandem.config.datasets import Dataset
from tandem.config.datasets import Windows as WindowsConfig
from tandem.data.collection import ANSWERS, CORPUS, LISTS, LITERAL_MATCH, QRELS, QUERIES
from tandem.data.sources import Answers, DatasetJob, Judgement, Listed, Passage, Query, Source, dataset_format
from tandem.data.sources.beir import BeirQueries
from tandem.data.tables import ANSWERS_SCHEMA, CORPUS_SCHEMA, LISTS_SCHEMA, QRELS_SCHEMA, QUERIES_SCHEMA, stream
from tandem.data.text import count_windows, cut, units_of, window_id
from tandem.errors import UserError
from tandem.store.artifact import Artifact

FILES = {
    "corpus": (CORPUS, CORPUS_SCHEMA), "queries": (QUERIES, QUERIES_SCHEMA), "qrels": (QRELS, QRELS_SCHEMA),
    "answers": (ANSWERS, ANSWERS_SCHEMA), "lists": (LISTS, LISTS_SCHEMA),
}  # fmt: skip


def input_artifact(job: DatasetJob, role: str, kind: str) -> Artifact:
    """An input of a derived dataset; a `UserError` if it is missing or of another kind."""
    if role not in job.inputs:
        raise UserError(f"dataset {job.key}: the input {role} is missing; give a {kind}")
    artifact = job.inputs[role]
    if artifact.manifest.kind != kind:
        raise UserError(f"dataset {job.key}: {role} {artifact.folder} is a {artifact.manifest.kind}, not a {kind}")
    return artifact


class Parts(Source):
    """A source that one method reads: `rows` of a part."""

    @abstractmethod
    def rows(self, part: str) -> Iterator[Any]:
        """Rows of a part: `corpus`, `queries`, `qrels`, `answers` or `lists`."""

    def corpus(self) -> Iterator[Passage]:
        return self.rows("corpus")

    def queries(self) -> Iterator[Query]:
        return self.rows("queries")

    def qrels(self) -> Iterator[Judgement]:
        return self.rows("qrels")

    def answers(self) -> Iterator[Answers]:
        return self.rows("answers")

    def lists(self) -> Iterator[Listed]:
        return self.rows("lists")


class Derived(Parts):
    """The dataset of an input, unchanged and in its order; subclasses override what they change."""

    literal_matches = True

    def __init__(self, job: DatasetJob, entry: Dataset, role: str = "of") -> None:
        super().__init__(job, entry)
        self.base = input_artifact(job, role, "dataset")
        self.places = {"corpus": str(self.base.folder / CORPUS), "queries": str(self.base.folder / QUERIES)}
        self.facts = {role: self.base.key}

    def rows(self, part: str) -> Iterator[Any]:
        """The rows of a part; none where the dataset has no such file."""
        name, schema = FILES[part]
        return stream(self.base.path(name), *schema.names) if name in self.base.manifest.files else iter(())


@dataset_format("pair")
class Pair(Derived):
    """The passages of the input `corpus`, with the queries of the input `queries` or, without it, of the folder `path`.

    Judgements and training lists name passages by id: those the corpus lacks are dealt with as in any dataset.
    """

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        if "queries" in job.inputs and job.execution.path:
            raise UserError(f"dataset {job.key}: has both queries_of and path; the queries come from one of them")
        super().__init__(job, entry, "corpus")
        self._other = Derived(job, entry, "queries") if "queries" in job.inputs else BeirQueries(job, entry)
        self.places["queries"] = self._other.places["queries"]
        self.facts |= self._other.facts
        self.judged_at = self._other.judged_at

    def rows(self, part: str) -> Iterator[Any]:
        """Passages of one dataset, all else of the other."""
        rows: Iterator[Any] = super().rows(part) if part == "corpus" else getattr(self._other, part)()
        return rows


class UnionEntry(Dataset):
    """The names of the united datasets; the datasets themselves are inputs."""

    names: Items[str] = Field(description="begin the ids of each dataset")


@dataset_format("union")
class Union(Parts):
    """The datasets of the inputs `of.0`, `of.1`, …, one after the other.

    Ids get `<name>.` before them, the name being that of `names`: a model trained on a union learns from each dataset's
    training queries over its own passages, with all passages to draw negatives from.
    """

    def __init__(self, job: DatasetJob, entry: UnionEntry) -> None:
        super().__init__(job, entry)
        names = entry.names
        self._parts = [(name, Derived(job, entry, f"of.{i}")) for i, name in enumerate(names)]
        if len(set(names)) < len(names):
            raise UserError(f"dataset {job.key}: names {', '.join(names)} must differ, ids begin with them")
        self.places = {key: " then ".join(part.places[key] for _, part in self._parts) for key in ("corpus", "queries")}
        self.facts = {"of": [part.base.key for _, part in self._parts]}

    def rows(self, part: str) -> Iterator[Any]:
        """Rows of each dataset, their ids prefixed."""
        ids = 2 if part in ("qrels", "lists") else 1
        for name, dataset in self._parts:
            for row in dataset.rows(part):
                yield (*(f"{name}.{id_}" for id_ in row[:ids]), *row[ids:])


class WindowsEntry(WindowsConfig):
    """How documents are cut; the dataset that is cut is an input, and the unit is chosen."""

    of: str = Field("", description="not used here")
    unit: Literal["words", "characters"] = Field(description="what length and stride count")


@dataset_format("windows")
class Windows(Derived):
    """Windows over the documents of the input `of` (Dai & Callan 2019).

    A document without text has one empty window. Only the text is cut. Labels belong to documents; which windows carry
    them matters for training alone: runs over windows are aggregated to documents before they are scored, by the
    documents' own qrels. With `label: first` a relevant document's other windows are neither positives nor negatives.
    """

    def __init__(self, job: DatasetJob, entry: WindowsEntry) -> None:
        super().__init__(job, entry)
        self._how = entry
        self._all = entry.label == "all"
        self.facts |= {"documents": 0, "cut": 0}

    def corpus(self) -> Iterator[Passage]:
        how = self._how
        for doc, title, text in super().corpus():
            windows = cut(text, how.length, how.stride, how.unit, how.most)
            self.facts["documents"] += 1
            self.facts["cut"] += len(windows) > 1
            for number, window in enumerate(windows):
                yield window_id(doc, number), title if how.titles == "repeat" or number == 0 else "", window

    def qrels(self) -> Iterator[Judgement]:
        """The judgements of documents, as `label` gives them to windows."""
        for query, doc, relevance, split in super().qrels():
            yield query, window_id(doc, 0), relevance, split
            if self._all or relevance > 0:
                for number in range(1, self._counts.get(doc, 1)):
                    yield query, window_id(doc, number), relevance if self._all else LITERAL_MATCH, split

    def lists(self) -> Iterator[Listed]:
        for query, doc, label, score in super().lists():
            for number in range(self._counts.get(doc, 1) if self._all else 1):
                yield query, window_id(doc, number), label, score

    @cached_property
    def _counts(self) -> dict[str, int]:
        how = self._how
        named = {row[1] for rows in (super().qrels(), super().lists()) for row in rows}
        counts = {}
        for doc, _, text in super().corpus():
            if doc in named:
                windows = count_windows(len(units_of(text, how.unit)), how.length, how.stride)
                if (number := min(windows, how.most or windows)) > 1:
                    counts[doc] = number
        return counts
