"""Indexes of weights of terms, in Lucene and in Seismic, their searches, and how these compare with the exact one.

Stages `impacts` and `search_impacts`: a weight w becomes the whole number round(w · L / m) of L = 255 levels: of
passages m is the largest weight of all, of a query its own largest. What becomes 0 is left out. The score is
Σ_j q_j d_j over the terms, a whole number, which Lucene's float32 holds exactly below 2²⁴: the ranking is that of the
exact product of the rounded weights.

Stages `seismic` and `search_seismic` (Bruch et al. 2024), an approximation: a term's list has the passages with its
largest weights, in blocks of similar ones; a query opens the lists of its largest terms alone and passes over blocks
whose summary scores too little. What is proposed is scored by the exact product of the stored weights, as of
`retrieve_sparse`, ties by document id.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.cluster.threads import usable_cores
from tandem.config.indexes import SeismicSearch
from tandem.config.settings import Execution
from tandem.data.collection import Collection
from tandem.data.columns import Floats
from tandem.data.rows import PassageOrder
from tandem.data.runs import write_rows, write_run
from tandem.errors import UserError
from tandem.retrieval.exact import Array, BestPassages, measure_search, space_evenly, unpack_keys
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.lexical.lucene import HITS_AT_ONCE, INDEX_FOLDER, OpenIndex, start_java, versions
from tandem.retrieval.lexical.lucene_index import TEXTS_FOLDER, index_files
from tandem.retrieval.retrieve import embedded_rows, iterate_ranked, open_embeddings
from tandem.retrieval.term_weights import QUERIES_PER_PRODUCT, TermWeights, best_of
from tandem.stages import KINDS
from tandem.stages import retrieval as stages
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

_IMPACT_SEARCHER = "io.anserini.search.SimpleImpactSearcher"
_LEVELS = 255
_ANSERINI_OPTIONS: dict[str, object] = {"impact": True, "pretokenized": True}
FILE, SUFFIX = "index", ".index.seismic"  # Seismic adds the second
_TWO_BYTE_TERMS = 1 << 16  # terms that two bytes number
_WEIGHT_BYTES = {"fp16": 6, "fp32": 8}  # bytes of a term's number and its weight

_ImpactRanking = tuple[str, list[str], Floats]
_ComparisonLine = dict[str, str | float | None]
_TimedSearch = Callable[[int, int, int], list[list[str]]]  # of the queries from one to another, by so many threads


def round_weights(weights: Any, largest: Any) -> Any:
    """Weights as whole numbers from 1 to `_LEVELS`, those that become 0 left out.

    Args:
        weights: a `csr_array` of shape (texts, vocabulary).
        largest: the weight that becomes `_LEVELS`: a number, or one for each stored weight.
    """
    rounded = weights.copy()
    rounded.data = np.rint(weights.data.astype(np.float64) * _LEVELS / largest)
    rounded.eliminate_zeros()
    return rounded


def round_query_weights(weights: Any) -> Any:
    """`round_weights` of queries, each by its own largest weight."""
    largest = weights.max(axis=1).toarray().ravel() if weights.shape[0] else np.empty(0)
    return round_weights(weights, np.repeat(largest, np.diff(weights.indptr)))


def run_impacts(job: Job[stages.ImpactsParams]) -> None:
    """Index the input `passages` into the folder `index/`. Execution: `workers` threads, `heap` of Java."""
    require_dataset(job, "passages")
    passages, threads = TermWeights(job.inputs["passages"], "passages"), job.execution.workers or usable_cores()
    ids = Collection(job.inputs["dataset"]).doc_ids()
    largest = max(float(passages.stored(number).max()) for number in range(len(passages)))
    machine = start_java(threads, job.execution.heap)
    with writing(job) as draft:
        for number in range(len(passages)):
            rounded, first = round_weights(passages.stored(number), largest or 1.0), number * passages.size
            with open(draft.path(f"{TEXTS_FOLDER}/{number:05}.jsonl"), "w", encoding="utf-8", newline="\n") as file:
                for row, name in enumerate(ids.slice(first, passages.size).to_pylist()):  # as Anserini reads vectors
                    line = {"id": name, "contents": "", "vector": _by_term(rounded, row)}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
        index_files(machine, job.key, "JsonVectorCollection", draft.folder, threads, passages.rows, _ANSERINI_OPTIONS)
        size = sum(path.stat().st_size for path in (draft.folder / INDEX_FOLDER).iterdir())
        draft.facts |= {"passages": passages.rows, "bytes_per_passage": round(size / passages.rows, 1)}
        draft.facts |= {"active_terms": passages.artifact.manifest.facts["active_terms"]}
        draft.facts["lucene"] = versions(machine)


def _by_term(weights: Any, row: int) -> dict[str, int]:
    """The weights of a row, terms named by their numbers."""
    at = slice(weights.indptr[row], weights.indptr[row + 1])
    return dict(zip(map(str, weights.indices[at].tolist()), weights.data[at].astype(int).tolist(), strict=True))


class Impacts(OpenIndex):
    """The index of an artifact, opened. Execution: `workers` threads, `heap` of Java."""

    def __init__(self, index: Artifact, execution: Execution) -> None:
        super().__init__(index, _IMPACT_SEARCHER, execution)
        self.keep_ties()

    def search(self, ids: list[str], queries: Any, depth: int, threads: int) -> Iterator[_ImpactRanking]:
        """Yield the best passages of queries that match any, ties by document id.

        Queries are as of `round_query_weights`, (queries, vocabulary).

        As many queries at a time as fill memory with `HITS_AT_ONCE` hits.
        """
        matching, size = np.flatnonzero(np.diff(queries.indptr)).tolist(), max(1, HITS_AT_ONCE // depth)
        for rows in (matching[first : first + size] for first in range(0, len(matching), size)):
            names = [ids[row] for row in rows]
            hits = self.batch(names, [_by_term(queries, row) for row in rows], depth, threads)
            for name in names:
                if own := hits[name]:
                    yield name, [doc for doc, _ in own], np.array([score for _, score in own], np.float32)


def run_search_impacts(job: Job[stages.SearchImpactsParams]) -> None:
    """Search the input `index` with the input `queries`; writes a run. A query without a match has no line."""
    queries = open_embeddings(job, TermWeights)[1]
    rounded, ids = round_query_weights(queries.take(0, queries.rows)), queries.query_ids()
    with closing(Impacts(job.inputs["index"], job.execution)) as index, writing(job) as draft:
        with Progress(f"search_impacts {job.key}", queries.rows, "queries") as progress:
            ranked = index.search(ids, rounded, job.params.depth, index.threads)
            lines = write_run(job, draft, counted(ranked, progress))
        draft.facts |= {"queries": queries.rows, "lines": lines, "lucene": versions(index.java)}


def counted(ranked: Iterator[_ImpactRanking], progress: Progress) -> Iterator[_ImpactRanking]:
    """The ranked lists, query by query; `progress` counts each."""
    for row in ranked:
        yield row
        progress.add(1)


def load_seismic(name: str, passages: TermWeights | None = None) -> Any:
    """A name of the package pyseismic-lsr, for as many terms as passages have; a `UserError` if it is not installed."""
    KINDS["seismic"].require_package()
    large = passages is not None and passages.dimension > _TWO_BYTE_TERMS
    return getattr(import_module("seismic"), f"{name}LV" if large else name)


def run_seismic(job: Job[stages.SeismicParams]) -> None:
    """Index the input `passages`. Execution: `workers` threads. The bytes differ from build to build."""
    require_dataset(job, "passages")
    passages = TermWeights(job.inputs["passages"], "passages")
    vectors = load_seismic("SeismicDataset", passages)(dim=passages.dimension)
    with Progress(f"seismic {job.key}", passages.rows, "passages") as progress:
        for number in range(len(passages)):
            rows, first = passages.stored(number), number * passages.size
            names = [str(row) for row in range(first, first + rows.shape[0])]
            vectors.add_documents_by_id(names, rows.indices.astype(np.int64), rows.data, rows.indptr.astype(np.int64))
            progress.add(rows.shape[0])
    options = {"n_postings": job.params.postings, "centroid_fraction": job.params.centroid_fraction}
    options |= {"summary_energy": job.params.summary_energy, "num_threads": job.execution.workers or 0}
    index = load_seismic("SeismicIndex", passages).build_from_dataset(vectors, **options)
    with writing(job) as draft:
        index.save(str(draft.folder / FILE))
        size = draft.path(f"{FILE}{SUFFIX}").stat().st_size
        draft.facts |= {"passages": passages.rows, "bytes_per_passage": round(size / passages.rows, 1)}


class Seismic:
    """The index of an artifact, opened; `params` say how much of it is searched."""

    def __init__(self, index: Artifact, passages: TermWeights, params: SeismicSearch) -> None:
        self.index = load_seismic("SeismicIndex", passages).load(str(index.folder / f"{FILE}{SUFFIX}"))
        self.text, self.params = load_seismic("get_seismic_string")(), params

    def search(self, queries: Any, depth: int, threads: int) -> list[Array]:
        """The rows of at most `depth` passages for each query, best first by Seismic's own scores.

        Queries are weights, a `csr_array` of shape (queries, vocabulary).
        """
        matching, starts = np.flatnonzero(np.diff(queries.indptr)), queries.indptr
        spans = [slice(starts[row], starts[row + 1]) for row in matching]
        terms, weights = queries.indices.astype(self.text), queries.data.astype(np.float32)
        sides = ([side[at] for at in spans] for side in (terms, weights))
        how = {"query_cut": self.params.query_cut, "heap_factor": self.params.heap_factor, "num_threads": threads}
        hits = self.index.batch_search(matching.astype(self.text), *sides, k=depth, **how)
        result = [np.empty(0, np.int64)] * queries.shape[0]
        for own in filter(None, hits):  # the queries come in any order; each hit names its own
            result[int(own[0][0])] = np.array([int(name) for _, _, name in own], np.int64)
        return result


def run_search_seismic(job: Job[stages.SearchSeismicParams]) -> None:
    """Search the input `index` with the input `queries`; writes a run. All passages' weights are in memory."""
    passages, queries = open_embeddings(job, TermWeights)
    engine, order = Seismic(job.inputs["index"], passages, job.params), PassageOrder(job.inputs["dataset"])
    weights, vectors = passages.take(0, passages.rows), queries.take(0, queries.rows)
    best = BestPassages(queries.rows, min(job.params.depth, passages.rows))
    proposed = engine.search(vectors, best.depth, job.execution.workers or usable_cores())
    with writing(job) as draft, Progress(f"search_seismic {job.key}", queries.rows, "queries") as progress:
        for row, own in enumerate(proposed):
            inverted, options = weights[own].T.tocsr(), (best.depth, passages.temperature)
            best.keys[row] = best_of(vectors[row : row + 1], inverted, order.ranks[own], *options)[0]
            progress.add(1)
        lines = write_rows(job, draft, iterate_ranked(best, embedded_rows(job, queries), order), order)
        draft.facts |= {"queries": queries.rows, "lines": lines}


def run_term_tradeoffs(job: Job[stages.TermTradeoffsParams]) -> None:
    """Measure recall, latency, terms and bytes: `tradeoffs.csv`, as of `tradeoffs`, and with `active_terms`.

    Seismic ranks by its own scores here. Latency is of one query at a time by one thread, throughput of all queries:
    times differ every time. The weights of all passages are in memory.
    """
    params = job.params
    passages, queries = open_embeddings(job, TermWeights)
    order, depth = PassageOrder(job.inputs["dataset"]), max(params.k)
    sample = queries.take(0, queries.rows)[space_evenly(queries.rows, params.queries)]
    sample = sample[np.flatnonzero(np.diff(sample.indptr))]
    if not sample.shape[0]:
        raise UserError(f"{queries.artifact.folder}: no query has a weight above 0; there is nothing to search for")
    rounded, inverted = round_query_weights(sample), passages.take(0, passages.rows).T.tocsr()
    index = job.inputs["index"]
    with closing(Impacts(index, job.execution)) as lucene, writing(job) as draft:

        def exact(first: int, stop: int, threads: int) -> list[list[str]]:
            parts = [sample[at : min(at + QUERIES_PER_PRODUCT, stop)] for at in range(first, stop, QUERIES_PER_PRODUCT)]
            options = inverted, order.ranks, depth, passages.temperature
            with ThreadPoolExecutor(threads) as pool:
                results = pool.map(lambda part: best_of(part, *options), parts)
                return [order.ids(unpack_keys(np.sort(row[row > 0])[::-1])[1]) for keys in results for row in keys]

        def by_lucene(first: int, stop: int, threads: int) -> list[list[str]]:
            names = list(map(str, range(stop - first)))
            hits = {name: docs for name, docs, _ in lucene.search(names, rounded[first:stop], depth, threads)}
            return [hits.get(name, []) for name in names]

        def by_seismic(engine: Seismic, first: int, stop: int, threads: int) -> list[list[str]]:
            results = engine.search(sample[first:stop], depth, threads)
            return [order.ids(order.ranks[rows].astype(np.int64)) for rows in results]

        def measure(search: _TimedSearch) -> dict[str, float]:
            everything = partial(search, 0, sample.shape[0], lucene.threads)
            ids = [np.array(docs) for docs in everything()]
            return measure_search(ids, best, params.k, lambda at: search(at, at + 1, 1), everything, params.repeats)

        best = [np.array(docs) for docs in exact(0, sample.shape[0], lucene.threads)]
        searches: list[tuple[str, str, _TimedSearch, float, Artifact]] = [
            ("exact", "products", exact, _WEIGHT_BYTES[passages.dtype] * passages.active, passages.artifact),
            ("lucene", "impacts", by_lucene, index.manifest.facts["bytes_per_passage"], index),
        ]
        for how, built in zip(params.seismic, job.many("seismic"), strict=True):
            engine = partial(by_seismic, Seismic(built, passages, how))
            searches.append((how.name, "seismic", engine, built.manifest.facts["bytes_per_passage"], built))
        lines = [
            _ComparisonLine(index=name, nprobe=None, ef_search=None, rescore=False)
            | measure(search)
            | _ComparisonLine(factory=kind, bytes_per_vector=size, key=artifact.key, active_terms=passages.active)
            for name, kind, search, size, artifact in searches
        ]
        write_text(draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines)))
        draft.facts |= {"lines": len(lines), "threads": lucene.threads, "active_query_terms": queries.active}
