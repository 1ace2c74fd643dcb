"""Weights of terms in Lucene: stage `impacts`, an inverted index of rounded weights, and `search_impacts`, its search.

A weight w becomes the whole number round(w · L / m) of L = 255 levels: of passages m is the largest weight of all, of a
query its own largest. What becomes 0 is left out. The score is Σ_j q_j d_j over the terms, a whole number, which
Lucene's float32 holds exactly below 2²⁴: the ranking is that of the exact product of the rounded weights.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.config.execution import Execution
from tandem.data.collection import Collection
from tandem.data.columns import Floats
from tandem.data.runs import write_run
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.lexical import java
from tandem.retrieval.lexical.lucene import HITS_AT_ONCE, LUCENE, MOST_TERMS, json_mapper, keep_ties
from tandem.retrieval.lexical.lucene_index import index_files
from tandem.retrieval.retrieve import open_as
from tandem.retrieval.term_weights import TermWeights
from tandem.stages.retrieval import ImpactsParams, SearchImpactsParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

SEARCHER = "io.anserini.search.SimpleImpactSearcher"
LEVELS = 255
ANSERINI: dict[str, object] = {"impact": True, "pretokenized": True}

Ranked = tuple[str, list[str], Floats]


def impacts(weights: Any, largest: Any) -> Any:
    """Weights as whole numbers from 1 to `LEVELS`, those that become 0 left out.

    Args:
        weights: a `csr_array` of shape (texts, vocabulary).
        largest: the weight that becomes `LEVELS`: a number, or one for each stored weight.
    """
    rounded = weights.copy()
    rounded.data = np.rint(weights.data.astype(np.float64) * LEVELS / largest)
    rounded.eliminate_zeros()
    return rounded


def query_impacts(weights: Any) -> Any:
    """`impacts` of queries, each by its own largest weight."""
    largest = weights.max(axis=1).toarray().ravel() if weights.shape[0] else np.empty(0)
    return impacts(weights, np.repeat(largest, np.diff(weights.indptr)))


def run(job: Job[ImpactsParams]) -> None:
    """Index the input `passages` into the folder `index/`. Execution: `workers` threads, `heap` of Java."""
    require_dataset(job, "passages")
    passages, threads = TermWeights(job.inputs["passages"], "passages"), job.execution.workers or os.cpu_count() or 1
    ids: list[str] = Collection(job.inputs["dataset"]).doc_ids().to_pylist()
    largest = max(float(passages.stored(number).max()) for number in range(len(passages)))
    machine = java.start(threads, job.execution.heap)
    with writing(job) as draft:
        texts, index = draft.folder / "texts", draft.folder / "index"
        texts.mkdir()
        for number in range(len(passages)):
            rounded, first = impacts(passages.stored(number), largest or 1.0), number * passages.size
            _write_impacts(texts / f"{number:05}.jsonl", rounded, ids[first : first + passages.size])
        index_files(machine, job.key, "JsonVectorCollection", texts, index, threads, passages.rows, ANSERINI)
        shutil.rmtree(texts)
        (index / "write.lock").unlink(missing_ok=True)
        size = sum(path.stat().st_size for path in index.iterdir())
        draft.facts |= {"passages": passages.rows, "bytes_per_passage": round(size / passages.rows, 1)}
        draft.facts |= {"active_terms": passages.artifact.manifest.facts["active_terms"]}
        draft.facts["lucene"] = java.versions(machine)


def _write_impacts(path: Path, weights: Any, ids: list[str]) -> None:
    """A block of passages as Anserini reads vectors, terms named by their numbers."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for row, name in enumerate(ids):
            line = {"id": name, "contents": "", "vector": _by_term(weights, row)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _by_term(weights: Any, row: int) -> dict[str, int]:
    at = slice(weights.indptr[row], weights.indptr[row + 1])
    return dict(zip(map(str, weights.indices[at].tolist()), weights.data[at].astype(int).tolist(), strict=True))


class Impacts:
    """The index of an artifact, opened: Anserini's search on Java's threads. Execution: `workers`, `heap` of Java."""

    def __init__(self, index: Artifact, passages: TermWeights, execution: Execution) -> None:
        passages.require_index(index)
        self.threads = execution.workers or os.cpu_count() or 1
        self.java = machine = java.start(self.threads, execution.heap)
        machine("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MOST_TERMS)
        self.searcher = machine(SEARCHER)(str(index.folder / "index"))
        keep_ties(self.searcher)
        self.mapper = json_mapper(machine, f"{LUCENE}document.Document")

    def search(self, ids: list[str], queries: Any, depth: int, threads: int) -> Iterator[Ranked]:
        """The best passages of queries that match any, ties by document id.

        Queries and hits travel as one text of JSON, as many at a time as fill memory with `HITS_AT_ONCE` hits.

        Args:
            queries: `query_impacts`, shape (queries, vocabulary).
        """
        arrays, size = self.java("java.lang.Class").forName("java.util.ArrayList"), max(1, HITS_AT_ONCE // depth)
        matching = np.flatnonzero(np.diff(queries.indptr)).tolist()
        for rows in (matching[first : first + size] for first in range(0, len(matching), size)):
            names = [ids[row] for row in rows]
            sides = [_by_term(queries, row) for row in rows], names
            terms, keys = (self.mapper.readValue(json.dumps(side), arrays) for side in sides)
            hits = json.loads(self.mapper.writeValueAsString(self.searcher.batch_search(terms, keys, depth, threads)))
            for name in names:
                if own := hits[name]:
                    yield name, [hit["docid"] for hit in own], np.array([hit["score"] for hit in own], np.float32)

    def close(self) -> None:
        """Close the files of the index."""
        self.searcher.close()


def run_search(job: Job[SearchImpactsParams]) -> None:
    """Search the input `index` with the input `queries`; writes a run. A query without a match has no line."""
    passages, queries = open_as(TermWeights, job, job.params.split)
    rounded, ids = query_impacts(queries.take(0, queries.rows)), queries.query_ids()
    with closing(Impacts(job.inputs["index"], passages, job.execution)) as index, writing(job) as draft:
        with Progress(f"search_impacts {job.key}", queries.rows, "queries") as progress:
            ranked = index.search(ids, rounded, job.params.depth, index.threads)
            lines = write_run(job, draft, counted(ranked, progress))
        draft.facts |= {"queries": queries.rows, "lines": lines, "lucene": java.versions(index.java)}


def counted(ranked: Iterator[Ranked], progress: Progress) -> Iterator[Ranked]:
    """The same, each counted as it comes."""
    for row in ranked:
        yield row
        progress.add(1)
