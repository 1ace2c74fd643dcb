"""Datasets with other queries than those they are derived from: without similar ones or labels, or dev alone."""

import heapq
from collections.abc import Container, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from tandem.config import datasets
from tandem.config.datasets import Dataset
from tandem.data.collection import Collection
from tandem.data.files import Files
from tandem.data.reading import fields
from tandem.data.runs import iter_run, ranked_order
from tandem.data.sources import DatasetJob, Query, dataset_format
from tandem.data.sources.derived import Derived, input_artifact
from tandem.data.splits import UNLABELLED, VALIDATED, position, subset
from tandem.data.tables import stream
from tandem.errors import UserError
from tandem.store.artifact import Artifact

UNLABELLED_FILE = "unlabelled.query.txt"
RUNS = ("bm25", "retrieve", "rerank", "imported", "given", "aggregate", "rerank_windows")


@dataset_format("dissimilar")
class Dissimilar(Derived):
    """The dataset of the input `of` without the training queries that resemble its dev and test queries.

    The input `similar`, an audit of it, names them (DuReader-retrieval §2.3).
    """

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        audit = input_artifact(job, "similar", "similar_queries")
        audited = Path(audit.upstream["dataset"]).name
        if audited != self.base.key:
            raise UserError(f"dataset {job.key}: {audit.folder} is an audit of {audited}, not of {self.base.key}")
        self._removed = {query for (query,) in stream(audit.path("train.parquet"), "query_id")}
        self.facts |= {"similar": audit.key, "removed": len(self._removed)}

    def rows(self, part: str) -> Iterator[Any]:
        """Passages, and the rows of the remaining queries."""
        return (row for row in super().rows(part) if part == "corpus" or row[0] not in self._removed)


class UnlabelledEntry(datasets.Unlabelled):
    """Which queries have no labels; the datasets are inputs."""

    of: str = Field("", description="not used here")


@dataset_format("unlabelled")
class Unlabelled(Derived):
    """The dataset of the input `of`, and queries without labels as split `unlabelled`, for a cross-encoder to label.

    They are the training queries of the input `queries`; else those of the file `unlabelled.query.txt` (id, text, by
    tabs); else a share of the dataset's own training queries, those whose ids hash below `share`, which lose their
    labels. Ids of queries from elsewhere get `unlabelled-` before them. A query whose text the dataset already asks is
    left out: it would leak into training what is scored.
    """

    def __init__(self, job: DatasetJob, entry: UnlabelledEntry) -> None:
        super().__init__(job, entry)
        self._other = Derived(job, entry, "queries") if "queries" in job.inputs else None
        has_files = job.execution.path or job.execution.files
        self._file = Files(job).find(UNLABELLED_FILE) if has_files else None
        self._share = entry.share
        if sum(origin is not None for origin in (self._other, self._file, self._share)) != 1:
            raise UserError(
                f"dataset {job.key}: queries come from one of queries_of, path (with {UNLABELLED_FILE}) and share"
            )

    def queries(self) -> Iterator[Query]:
        """The dataset's queries, then those from elsewhere."""
        texts = set()
        for query, text, split in super().queries():
            texts.add(text)
            yield query, text, UNLABELLED if query in self._losing else split
        self.facts["asked_already"] = 0
        others = (
            [(query, text) for query, text, split in self._other.queries() if split == "train"] if self._other else []
        )
        if self._file is not None:
            others = [(query, text) for _, (query, text) in fields(self._file, "query id, text", 2)]
        for query, text in others:
            if text in texts:
                self.facts["asked_already"] += 1
            else:
                yield f"unlabelled-{query}", text, UNLABELLED

    def rows(self, part: str) -> Iterator[Any]:
        """Rows of the dataset, without labels of queries that lose them."""
        whole = part in ("corpus", "queries")
        return (row for row in super().rows(part) if whole or row[0] not in self._losing)

    @cached_property
    def _losing(self) -> set[str]:
        """The queries that lose their labels."""
        share = self._share or 0
        return {query for query, _, split in super().rows("queries") if split == "train" and position(query) < share}


class ReducedEntry(datasets.Reduced):
    """How much of the corpus stays; the dataset and the run are inputs."""

    of: str = Field("", description="not used here")


@dataset_format("reduced")
class Reduced(Derived):
    """The dev queries of the input `of` (at most `dev_queries`, by hash) over a part of its passages.

    The corpus is the union over the queries of the top `depth` of the input `run`, the reference, and all relevant
    passages, as Asyncval (Zhuang and Zuccon 2022) cuts it: a checkpoint is encoded and searched in minutes where the
    whole corpus takes hours. The top passages are also its lists, none of them a positive, so that the run `given` of
    the reduced dataset is the reference run again and a cross-encoder can re-rank it.
    """

    def __init__(self, job: DatasetJob, entry: ReducedEntry) -> None:
        super().__init__(job, entry)
        base = self.base
        self._texts = Collection(base).queries(VALIDATED)
        self._selected = subset(dict.fromkeys(self._texts, VALIDATED), {VALIDATED: job.params.dev_queries})
        self._top = {query: docs for query, docs in _top(job, base, entry.depth) if query in self._selected}
        judged = [row for row in super().rows("qrels") if row[0] in self._selected and row[3] == VALIDATED]
        needed = {doc for docs in self._top.values() for doc in docs} | {row[1] for row in judged if row[2] > 0}
        self._docs = needed | _drawn(Collection(base), needed, entry.others * len(self._selected))
        self._judged = [row for row in judged if row[2] > 0 or row[1] in self._docs]
        self.facts |= {"run": job.inputs["run"].key, "found": len(needed)}

    def rows(self, part: str) -> Iterator[Any]:
        """What stays of a part: the lists are the reference run's top passages, in its order."""
        match part:
            case "queries":
                return ((query, self._texts[query], VALIDATED) for query in self._selected)
            case "qrels":  # of irrelevant passages only those that stay
                return iter(self._judged)
            case "lists":
                return ((query, doc, 0, None) for query, docs in self._top.items() for doc in docs)
        selected: Container[str] = self._docs if part == "corpus" else self._selected
        return (row for row in super().rows(part) if row[0] in selected)


def _top(job: DatasetJob, base: Artifact, depth: int) -> Iterator[tuple[str, list[str]]]:
    """(query, the first `depth` documents of the reference run); a `UserError` if the run does not fit."""
    run = job.inputs.get("run")
    if run is None or run.manifest.kind not in RUNS:
        raise UserError(f"dataset {job.key}: the input run is missing or no run; give one of {', '.join(RUNS)}")
    searched = run.upstream["dataset"].rstrip("/").rpartition("/")[2]
    split = run.params.get("split", VALIDATED)
    if (searched, split) != (base.key, VALIDATED):
        raise UserError(f"{run.folder}: is a run of split {split} on {searched}; expected {VALIDATED} on {base.key}")
    for query, docs, scores in iter_run(run.path("run.trec")):
        yield query, [doc for doc, _ in ranked_order(docs, scores)[:depth]]


def _drawn(collection: Collection, present: set[str], count: int) -> set[str]:
    """So many further passages, those whose ids have the lowest hash: a larger draw contains every smaller one."""
    if not count:
        return set()
    ids = (doc for batch in collection.batches(columns=["doc_id"]) for doc in batch["doc_id"].to_pylist())
    return set(heapq.nsmallest(count, (doc for doc in ids if doc not in present), key=position))
