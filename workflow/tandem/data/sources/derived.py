"""Datasets made of others: their rows unchanged, one's passages with another's queries, unions, and windows."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tandem.artifact import Artifact, Job
from tandem.config.base import Items
from tandem.config.datasets import Dataset
from tandem.config.datasets import Windows as WindowsConfig
from tandem.data.collection import ANSWERS, CORPUS, LISTS, LITERAL_MATCH, QRELS, QUERIES
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source, dataset_format
from tandem.data.sources.beir import BeirQueries
from tandem.data.tables import streaming
from tandem.data.text import count_windows, cut, units_of, window_id
from tandem.errors import UserError
from tandem.stages.data import DatasetParams


class ArtifactRows:
    """The dataset artifact of an input, streamed in its own order with one batch in memory at a time."""

    def __init__(self, job: Job[DatasetParams], role: str) -> None:
        self.artifact = input_artifact(job, role, "dataset")
        self.places = {"corpus": str(self.artifact.folder / CORPUS), "queries": str(self.artifact.folder / QUERIES)}

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every passage."""
        return stream(self.artifact.path(CORPUS), "doc_id", "title", "text")

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every query."""
        return stream(self.artifact.path(QUERIES), "query_id", "text", "split")

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of every judgement."""
        return stream(self.artifact.path(QRELS), "query_id", "doc_id", "relevance", "split")

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of every question that has some."""
        return self._optional(ANSWERS, "query_id", "answers")

    def lists(self) -> Iterator[Listed]:
        """(query id, document id, label, score) of its training lists."""
        return self._optional(LISTS, "query_id", "doc_id", "label", "score")

    def _optional(self, name: str, *columns: str) -> Iterator[Any]:
        """The rows of a file that only some datasets have."""
        return stream(self.artifact.path(name), *columns) if name in self.artifact.manifest["files"] else iter(())


def stream(path: Path, *columns: str) -> Iterator[Any]:
    """Rows of a Parquet file as tuples of some columns, a batch in memory at a time."""
    with streaming(path) as file:
        for batch in file.iter_batches(columns=list(columns)):
            yield from zip(*(batch[name].to_pylist() for name in columns), strict=True)


def input_artifact(job: Job[DatasetParams], role: str, kind: str) -> Artifact:
    """An input of a derived dataset; a `UserError` if it is missing or of another kind."""
    if role not in job.inputs:
        raise UserError(f"dataset {job.key}: the input {role} is missing; give a {kind}")
    artifact = job.inputs[role]
    if artifact.manifest["kind"] != kind:
        raise UserError(f"dataset {job.key}: {role} {artifact.folder} is a {artifact.manifest['kind']}, not a {kind}")
    return artifact


class Derived(Source):
    """Passages of one dataset and queries of the same or another, unchanged; subclasses override what they change."""

    def __init__(
        self,
        job: Job[DatasetParams],
        entry: Dataset,
        passages: ArtifactRows | None = None,
        queries: ArtifactRows | BeirQueries | None = None,
    ) -> None:
        """`passages` are by default those of the input `of`, `queries` those of the same dataset."""
        super().__init__(job, entry)
        self.base = passages or ArtifactRows(job, "of")
        self._queries = queries or self.base
        self.places = {"corpus": self.base.places["corpus"], "queries": self._queries.places["queries"]}
        self.facts = {"of": self.base.artifact.key}

    def corpus(self) -> Iterator[Passage]:
        """Every passage."""
        return self.base.corpus()

    def queries(self) -> Iterator[Query]:
        """Every query."""
        return self._queries.queries()

    def qrels(self) -> Iterator[Judgement]:
        """Every judgement."""
        return self._queries.qrels()

    def answers(self) -> Iterator[Answers]:
        """Every question's answers."""
        return self._queries.answers()

    def lists(self) -> Iterator[Listed]:
        """The training lists."""
        return self._queries.lists()


@dataset_format("pair")
class Pair(Derived):
    """The passages of the input `corpus`, with the queries of the input `queries` or, without it, of the folder `path`.

    Judgements and training lists name passages by id: those the corpus lacks are dealt with as in any dataset.
    """

    def __init__(self, job: Job[DatasetParams], entry: Dataset) -> None:
        if "queries" in job.inputs and job.execution.path:
            raise UserError(f"dataset {job.key}: has both queries_of and path; the queries come from one of them")
        passages = ArtifactRows(job, "corpus")
        queries = ArtifactRows(job, "queries") if "queries" in job.inputs else BeirQueries(job, entry)
        super().__init__(job, entry, passages, queries)
        self.facts = {"corpus": passages.artifact.key}
        if isinstance(queries, ArtifactRows):
            self.facts["queries"] = queries.artifact.key


class UnionEntry(Dataset):
    """The names of the united datasets; the datasets themselves are inputs."""

    names: Items[str] = Field(description="begin the ids of each dataset")


@dataset_format("union")
class Union(Source):
    """The datasets of the inputs `of.0`, `of.1`, …, one after the other.

    Ids get `<name>.` before them, the name being that of `names`: a model trained on a union learns from each dataset's
    training queries over its own passages, with all passages to draw negatives from.
    """

    def __init__(self, job: Job[DatasetParams], entry: UnionEntry) -> None:
        super().__init__(job, entry)
        names = entry.names
        self._parts = [(name, ArtifactRows(job, f"of.{i}")) for i, name in enumerate(names)]
        if len(set(names)) < len(names):
            raise UserError(f"dataset {job.key}: names {', '.join(names)} must differ, ids begin with them")
        self.places = {key: " then ".join(part.places[key] for _, part in self._parts) for key in ("corpus", "queries")}
        self.facts = {"of": [part.artifact.key for _, part in self._parts]}

    def corpus(self) -> Iterator[Passage]:
        """Every passage of each."""
        return self._prefixed(ArtifactRows.corpus, 1)

    def queries(self) -> Iterator[Query]:
        """Every query of each, in the split that it has there."""
        return self._prefixed(ArtifactRows.queries, 1)

    def qrels(self) -> Iterator[Judgement]:
        """The judgements of each."""
        return self._prefixed(ArtifactRows.qrels, 2)

    def answers(self) -> Iterator[Answers]:
        """The answers of those that have some."""
        return self._prefixed(ArtifactRows.answers, 1)

    def lists(self) -> Iterator[Listed]:
        """The training lists of those that have some."""
        return self._prefixed(ArtifactRows.lists, 2)

    def _prefixed(self, read: Callable[[ArtifactRows], Iterable[tuple[Any, ...]]], ids: int) -> Iterator[Any]:
        """Rows of each part, whose first `ids` columns are ids."""
        for name, part in self._parts:
            for row in read(part):
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

    def __init__(self, job: Job[DatasetParams], entry: WindowsEntry) -> None:
        super().__init__(job, entry)
        self._entry = entry
        self._all = entry.label == "all"
        self.facts |= {"documents": 0, "cut": 0}

    def corpus(self) -> Iterator[Passage]:
        """Every window, document after document."""
        how = self._entry
        for doc, title, text in self.base.corpus():
            windows = cut(text, how.length, how.stride, how.unit, how.most)
            self.facts["documents"] += 1
            self.facts["cut"] += len(windows) > 1
            for number, window in enumerate(windows):
                yield window_id(doc, number), title if how.titles == "repeat" or number == 0 else "", window

    def qrels(self) -> Iterator[Judgement]:
        """The judgements of documents, as `label` gives them to windows."""
        for query, doc, relevance, split in self.base.qrels():
            yield query, window_id(doc, 0), relevance, split
            if self._all or relevance > 0:
                for number in range(1, self._counts.get(doc, 1)):
                    yield query, window_id(doc, number), relevance if self._all else LITERAL_MATCH, split

    def lists(self) -> Iterator[Listed]:
        """The training lists, with the windows that carry a document's label in its place."""
        for query, doc, label, score in self.base.lists():
            for number in range(self._counts.get(doc, 1) if self._all else 1):
                yield query, window_id(doc, number), label, score

    @cached_property
    def _counts(self) -> dict[str, int]:
        """The number of windows of each judged or listed document that has several."""
        how = self._entry
        named = {row[1] for rows in (self.base.qrels(), self.base.lists()) for row in rows}
        counts = {}
        for doc, _, text in self.base.corpus():
            if doc in named:
                windows = count_windows(len(units_of(text, how.unit)), how.length, how.stride)
                if (number := min(windows, how.most or windows)) > 1:
                    counts[doc] = number
        return counts
