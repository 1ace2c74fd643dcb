"""A dataset without the training queries that are similar to queries of its other splits (DuReader-retrieval §2.3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.collection import CORPUS, QUERIES
from tandem.data.sources import Answers, Judgement, Listed, Passage, Query, Source
from tandem.data.sources.artifact_rows import ArtifactRows, needed, stream
from tandem.errors import UserError
from tandem.store.job import Job


class Dissimilar(Source):
    """The dataset of the input `of` without the queries that the input `similar` (an audit of it) names."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        base, audit = needed(job, "of", "dataset"), needed(job, "similar", "similar_queries")
        audited = Path(audit.upstream["dataset"]).name
        if audited != base.key:
            raise UserError(f"dataset {job.key}: {audit.folder} is an audit of {audited}, not of {base.key}")
        self._base = ArtifactRows(base)
        self._removed = {query for (query,) in stream(audit.path("train.parquet"), "query_id")}
        self.places = {"corpus": self._base.place(CORPUS), "queries": self._base.place(QUERIES)}
        self.facts = {"of": base.key, "similar": audit.key, "removed": len(self._removed)}

    def corpus(self) -> Iterator[Passage]:
        """Every passage of the dataset."""
        return self._base.corpus()

    def queries(self) -> Iterator[Query]:
        """The queries that stay."""
        return self._staying(self._base.queries())

    def qrels(self) -> Iterator[Judgement]:
        """Their judgements."""
        return self._staying(self._base.qrels())

    def answers(self) -> Iterator[Answers]:
        """Their answers."""
        return self._staying(self._base.answers())

    def lists(self) -> Iterator[Listed]:
        """Their training lists."""
        return self._staying(self._base.lists())

    def _staying(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Rows, each beginning with a query id, of the queries that stay."""
        return (row for row in rows if row[0] not in self._removed)
