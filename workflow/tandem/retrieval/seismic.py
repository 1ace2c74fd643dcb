"""Weights of terms in Seismic (Bruch et al. 2024): stage `seismic`, its index, and `search_seismic`, its search.

An approximation: a term's list has the passages with its largest weights, in blocks of similar ones; a query opens the
lists of its largest terms alone and passes over blocks whose summary scores too little. What is proposed is scored by
the exact product of the stored weights, as of `retrieve_sparse`, ties by document id.
"""

import os
from importlib import import_module
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.config.indexes import SeismicSearch
from tandem.data.rows import Order
from tandem.data.runs import write_rows
from tandem.retrieval.exact import Array, Best
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.retrieve import embedded_rows, lists, open_as
from tandem.retrieval.sparse_search import best_of
from tandem.retrieval.term_weights import TermWeights
from tandem.stages import KINDS
from tandem.stages.retrieval import SearchSeismicParams, SeismicParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

FILE, SUFFIX = "index", ".index.seismic"  # Seismic adds the second
SMALL = 1 << 16  # terms that two bytes number


def package() -> Any:
    """The package pyseismic-lsr; a `UserError` where it is not installed."""
    KINDS["seismic"].require_package()
    return import_module("seismic")


def run(job: Job[SeismicParams]) -> None:
    """Index the input `passages`. Execution: `workers` threads. The bytes differ from build to build."""
    require_dataset(job, "passages")
    seismic, passages = package(), TermWeights(job.inputs["passages"], "passages")
    large = "" if passages.dimension <= SMALL else "LV"
    vectors = getattr(seismic, f"SeismicDataset{large}")(dim=passages.dimension)
    with Progress(f"seismic {job.key}", passages.rows, "passages") as progress:
        for number in range(len(passages)):
            rows, first = passages.stored(number), number * passages.size
            names = [str(row) for row in range(first, first + rows.shape[0])]
            vectors.add_documents_by_id(names, rows.indices.astype(np.int64), rows.data, rows.indptr.astype(np.int64))
            progress.add(rows.shape[0])
    options = {"n_postings": job.params.postings, "centroid_fraction": job.params.centroid_fraction}
    options |= {"summary_energy": job.params.summary_energy, "num_threads": job.execution.workers or 0}
    index = getattr(seismic, f"SeismicIndex{large}").build_from_dataset(vectors, **options)
    with writing(job) as draft:
        index.save(str(draft.folder / FILE))
        size = draft.path(f"{FILE}{SUFFIX}").stat().st_size
        draft.facts |= {"passages": passages.rows, "bytes_per_passage": round(size / passages.rows, 1)}


class Seismic:
    """The index of an artifact, opened; `params` say how much of it is searched."""

    def __init__(self, index: Artifact, passages: TermWeights, params: SeismicSearch) -> None:
        passages.require_index(index)
        seismic, large = package(), "" if passages.dimension <= SMALL else "LV"
        self.index = getattr(seismic, f"SeismicIndex{large}").load(str(index.folder / f"{FILE}{SUFFIX}"))
        self.text, self.params = seismic.get_seismic_string(), params

    def search(self, queries: Any, depth: int, threads: int) -> list[Array]:
        """The rows of at most `depth` passages for each query, best first by Seismic's own scores.

        Args:
            queries: weights, a `csr_array` of shape (queries, vocabulary).
        """
        matching, starts = np.flatnonzero(np.diff(queries.indptr)), queries.indptr
        spans = [slice(starts[row], starts[row + 1]) for row in matching]
        terms, weights = queries.indices.astype(self.text), queries.data.astype(np.float32)
        hits = self.index.batch_search(
            matching.astype(self.text),
            [terms[at] for at in spans],
            [weights[at] for at in spans],
            k=depth,
            query_cut=self.params.query_cut,
            heap_factor=self.params.heap_factor,
            num_threads=threads,
        )
        result = [np.empty(0, np.int64)] * queries.shape[0]
        for own in filter(None, hits):  # the queries come in any order; each hit names its own
            result[int(own[0][0])] = np.array([int(name) for _, _, name in own], np.int64)
        return result


def run_search(job: Job[SearchSeismicParams]) -> None:
    """Search the input `index` with the input `queries`; writes a run. All passages' weights are in memory."""
    passages, queries = open_as(TermWeights, job, job.params.split)
    engine, order = Seismic(job.inputs["index"], passages, job.params), Order(job.inputs["dataset"])
    weights, vectors = passages.take(0, passages.rows), queries.take(0, queries.rows)
    best = Best(queries.rows, min(job.params.depth, passages.rows))
    proposed = engine.search(vectors, best.depth, job.execution.workers or os.cpu_count() or 1)
    with writing(job) as draft, Progress(f"search_seismic {job.key}", queries.rows, "queries") as progress:
        for row, own in enumerate(proposed):
            inverted, options = weights[own].T.tocsr(), (best.depth, passages.temperature)
            best.keys[row] = best_of(vectors[row : row + 1], inverted, order.ranks[own], *options)[0]
            progress.add(1)
        lines = write_rows(job, draft, lists(best, embedded_rows(job, queries), order), order)
        draft.facts |= {"queries": queries.rows, "lines": lines}
