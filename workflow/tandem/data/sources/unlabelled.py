"""A dataset with queries of which nothing is known, as split `unlabelled`; a cross-encoder labels them (RocketQA)."""

from collections.abc import Iterator
from typing import Any

from tandem.data.collection import CORPUS, QUERIES
from tandem.data.files import Files
from tandem.data.reading import fields
from tandem.data.select import UNLABELLED, position
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed
from tandem.errors import UserError
from tandem.store.job import Job

FILE = "unlabelled.query.txt"


class Unlabelled(Source):
    """The dataset of the input `of`, and queries without labels.

    They are the training queries of the input `queries`; else those of the file `unlabelled.query.txt` (id, text, by
    tabs); else a share of the dataset's own training queries, those whose ids hash below `share`, which lose their
    labels. Ids of queries from elsewhere get `unlabelled-` before them. A query whose text the dataset already asks is
    left out: it would leak into training what is scored.
    """

    PARAMS = frozenset({"share"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._base = ArtifactRows(needed(job, "of", "dataset"))
        self._other = ArtifactRows(needed(job, "queries", "dataset")) if "queries" in job.inputs else None
        told = job.execution.path or job.execution.files
        self._file = Files(job).find(FILE) if told else None
        self._share = job.params.get("share")
        if sum(one is not None for one in (self._other, self._file, self._share)) != 1:
            raise UserError(f"dataset {job.key}: queries come from one of queries_of, path (with {FILE}) and share")
        self.places = {"corpus": self._base.place(CORPUS), "queries": self._base.place(QUERIES)}
        self.facts = {"of": self._base.artifact.key}

    def corpus(self) -> Iterator[Passage]:
        """Every passage of the dataset."""
        return self._base.corpus()

    def queries(self) -> Iterator[Query]:
        """The dataset's queries, then those from elsewhere."""
        asked = set()
        for query, text, split in self._base.queries():
            asked.add(text)
            yield query, text, UNLABELLED if self._loses(query, split) else split
        self.facts["asked_already"] = 0
        for query, text in self._elsewhere():
            if text in asked:
                self.facts["asked_already"] += 1
            else:
                yield f"unlabelled-{query}", text, UNLABELLED

    def _elsewhere(self) -> Iterator[tuple[str, str]]:
        """(id, text) of the queries that are not the dataset's own."""
        if self._other is not None:
            yield from ((query, text) for query, text, split in self._other.queries() if split == "train")
        if self._file is not None:
            yield from ((query, text) for _, (query, text) in fields(self._file, "query id, text", 2))

    def _loses(self, query: str, split: str) -> bool:
        """Whether one of the dataset's queries loses its labels."""
        return self._share is not None and split == "train" and position(query) < self._share

    def qrels(self) -> Iterator[Judgement]:
        """The judgements, without those of queries that lose them."""
        return (row for row in self._base.qrels() if not self._loses(row[0], row[3]))

    def answers(self) -> Iterator[Answers]:
        """The answers, likewise."""
        return self._labelled(self._base.answers())

    def lists(self) -> Iterator[Listed]:
        """The training lists, likewise."""
        return self._labelled(self._base.lists())

    def _labelled(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Rows, each beginning with a query id, of the queries that keep their labels."""
        lost = {query for query, _, split in self._base.queries() if self._loses(query, split)}
        return (row for row in rows if row[0] not in lost)
