"""Indexes of weights of terms in Lucene and in Seismic, and their searches.

Stages `impacts` and `search_impacts`: a weight w becomes the whole number round(w · L / m), with L = 255 levels. For
passages, m is the largest weight of all passages; for a query, its own largest weight. Weights that become 0 are left
out. The score is Σ_j q_j d_j over the terms: a whole number, which Lucene's float32 holds exactly below 2²⁴. So the
ranking is that of the exact product of the rounded weights.

Stages `seismic` and `search_seismic` (Bruch et al. 2024), an approximation: a term's list contains the passages with
the term's largest weights, in blocks of similar passages. A query opens only the lists of its largest terms and skips
blocks whose summary scores too low. The passages that are left are scored by the exact product of the stored weights,
as in `retrieve_sparse`; ties go by document id.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.cluster.threads import count_usable_cores
from tandem.config.settings import Execution
from tandem.contrib.term_weights.term_options import (
    ImpactsParams,
    SearchImpactsParams,
    SearchSeismicParams,
    SeismicParams,
    SeismicSearch,
)
from tandem.contrib.term_weights.term_search import TermWeights, select_best
from tandem.data.collection import Collection
from tandem.data.columns import Floats
from tandem.data.rows import PassageOrder
from tandem.data.runs import write_rows, write_run
from tandem.retrieval.exact import Array, BestPassages
from tandem.retrieval.inputs import require_passages
from tandem.retrieval.lexical.lucene import (
    HITS_AT_ONCE,
    INDEX_FOLDER,
    OpenIndex,
    list_versions,
    start_java,
)
from tandem.retrieval.lexical.lucene_index import TEXTS_FOLDER, index_files
from tandem.retrieval.retrieve import iterate_ranked, open_embeddings, read_embedded_rows
from tandem.stages import KINDS
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

_IMPACT_SEARCHER = "io.anserini.search.SimpleImpactSearcher"
_LEVELS = 255
_ANSERINI_OPTIONS: dict[str, object] = {"impact": True, "pretokenized": True}
_SEISMIC_NAME = "index"
_SEISMIC_FILE = f"{_SEISMIC_NAME}.index.seismic"  # Seismic adds the ending
_TWO_BYTE_TERMS = 1 << 16  # terms that a number of two bytes can name

_ImpactRanking = tuple[str, list[str], Floats]


def round_weights(weights: Any, largest: Any) -> Any:
    """Return weights as whole numbers from 1 to `_LEVELS`, without those that become 0.

    Args:
        weights: a `csr_array` of shape (texts, vocabulary).
        largest: the weight that becomes `_LEVELS`: one number, or a number for each stored weight.
    """
    rounded = weights.copy()
    rounded.data = np.rint(weights.data.astype(np.float64) * _LEVELS / largest)
    rounded.eliminate_zeros()
    return rounded


def round_query_weights(weights: Any) -> Any:
    """Return the weights of queries rounded by `round_weights`, each query by its own largest weight."""
    largest = np.empty(0)
    if weights.shape[0]:
        largest = weights.max(axis=1).toarray().ravel()
    terms_per_query = np.diff(weights.indptr)
    return round_weights(weights, np.repeat(largest, terms_per_query))


def run_impacts(job: Job[ImpactsParams]) -> None:
    """Index the input `passages` into the folder `index/`. Execution: `workers` threads, `heap` of Java."""
    require_passages(job, "passages")
    passages = TermWeights(job.inputs["passages"], "passages")
    threads = job.execution.workers or count_usable_cores()
    ids = Collection(job.inputs["dataset"]).doc_ids()
    largest = max(float(passages.read_stored(number).max()) for number in range(len(passages)))
    machine = start_java(threads, job.execution.heap)
    with writing(job) as draft:
        for number in range(len(passages)):
            rounded = round_weights(passages.read_stored(number), largest or 1.0)
            names = ids.slice(number * passages.size, passages.size).to_pylist()
            path = draft.path(f"{TEXTS_FOLDER}/{number:05}.jsonl")
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                for row, name in enumerate(names):
                    # the format in which Anserini reads vectors
                    line = {"id": name, "contents": "", "vector": _name_terms(rounded, row)}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
        index_files(
            machine,
            job.key,
            "JsonVectorCollection",
            draft.folder,
            threads,
            passages.rows,
            _ANSERINI_OPTIONS,
        )

        size = sum(path.stat().st_size for path in (draft.folder / INDEX_FOLDER).iterdir())
        draft.facts["passages"] = passages.rows
        draft.facts["bytes_per_passage"] = round(size / passages.rows, 1)
        draft.facts["active_terms"] = passages.artifact.manifest.facts["active_terms"]
        draft.facts["lucene"] = list_versions(machine)


def _name_terms(weights: Any, row: int) -> dict[str, int]:
    """Return the weights of a row by term; a term's name is its number."""
    stored = slice(weights.indptr[row], weights.indptr[row + 1])
    names = map(str, weights.indices[stored].tolist())
    values = weights.data[stored].astype(int).tolist()
    return dict(zip(names, values, strict=True))


class Impacts(OpenIndex):
    """Open the index of an artifact and search it. Execution: `workers` threads, `heap` of Java."""

    def __init__(self, index: Artifact, execution: Execution) -> None:
        super().__init__(index, _IMPACT_SEARCHER, execution)
        self.keep_ties()

    def search(
        self, ids: list[str], queries: Any, depth: int, threads: int
    ) -> Iterator[_ImpactRanking]:
        """Yield the best passages of each query that matches any, ties by document id.

        Queries are searched in groups with at most `HITS_AT_ONCE` hits in memory.

        Args:
            queries: the result of `round_query_weights`, shape (queries, vocabulary).
        """
        matching = np.flatnonzero(np.diff(queries.indptr)).tolist()
        size = max(1, HITS_AT_ONCE // depth)
        for first in range(0, len(matching), size):
            rows = matching[first : first + size]
            names = [ids[row] for row in rows]
            terms = [_name_terms(queries, row) for row in rows]
            hits = self.batch(names, terms, depth, threads)
            for name in names:
                if hits[name]:
                    docs = [doc for doc, _ in hits[name]]
                    scores = [score for _, score in hits[name]]
                    yield name, docs, np.array(scores, np.float32)


def run_search_impacts(job: Job[SearchImpactsParams]) -> None:
    """Search the input `index` with the input `queries` and write a run. A query without a match has no line."""
    _, queries = open_embeddings(job, TermWeights)
    rounded = round_query_weights(queries.take(0, queries.rows))
    ids = queries.read_query_ids()
    with closing(Impacts(job.inputs["index"], job.execution)) as index, writing(job) as draft:
        with Progress(f"search_impacts {job.key}", queries.rows, "queries") as progress:
            ranked = index.search(ids, rounded, job.params.depth, index.threads)
            lines = write_run(job, draft, count_queries(ranked, progress))
        draft.facts |= {
            "queries": queries.rows,
            "lines": lines,
            "lucene": list_versions(index.java),
        }


def count_queries(ranked: Iterator[_ImpactRanking], progress: Progress) -> Iterator[_ImpactRanking]:
    """Yield the ranked lists, query by query; `progress` counts each."""
    for ranking in ranked:
        yield ranking
        progress.add(1)


def load_seismic(name: str, passages: TermWeights | None = None) -> Any:
    """Return the object with this name from the package pyseismic-lsr, in the variant for the passages' vocabulary.

    Raises:
        UserError: the package is not installed.
    """
    KINDS["seismic"].require_package()
    needs_more_bytes = passages is not None and passages.dimension > _TWO_BYTE_TERMS
    return getattr(import_module("seismic"), f"{name}LV" if needs_more_bytes else name)


def run_seismic(job: Job[SeismicParams]) -> None:
    """Index the input `passages` with `workers` threads (execution). The index's bytes differ from build to build."""
    require_passages(job, "passages")
    params = job.params
    passages = TermWeights(job.inputs["passages"], "passages")
    vectors = load_seismic("SeismicDataset", passages)(dim=passages.dimension)
    with Progress(f"seismic {job.key}", passages.rows, "passages") as progress:
        for number in range(len(passages)):
            block = passages.read_stored(number)
            first = number * passages.size
            names = [str(row) for row in range(first, first + block.shape[0])]
            vectors.add_documents_by_id(
                names, block.indices.astype(np.int64), block.data, block.indptr.astype(np.int64)
            )
            progress.add(block.shape[0])

    index = load_seismic("SeismicIndex", passages).build_from_dataset(
        vectors,
        n_postings=params.postings,
        centroid_fraction=params.centroid_fraction,
        summary_energy=params.summary_energy,
        num_threads=job.execution.workers or 0,
    )
    with writing(job) as draft:
        index.save(str(draft.folder / _SEISMIC_NAME))
        size = draft.path(_SEISMIC_FILE).stat().st_size
        draft.facts["passages"] = passages.rows
        draft.facts["bytes_per_passage"] = round(size / passages.rows, 1)


class Seismic:
    """Open the index of an artifact and search it; `params` decide how much of it is searched."""

    def __init__(self, index: Artifact, passages: TermWeights, params: SeismicSearch) -> None:
        self.index = load_seismic("SeismicIndex", passages).load(str(index.folder / _SEISMIC_FILE))
        self.text_type = load_seismic("get_seismic_string")()
        self.params = params

    def search(self, queries: Any, depth: int, threads: int) -> list[Array]:
        """Return the rows of at most `depth` passages for each query, best first by Seismic's own scores.

        Queries are weights, a `csr_array` of shape (queries, vocabulary).
        """
        matching = np.flatnonzero(np.diff(queries.indptr))
        terms = queries.indices.astype(self.text_type)
        weights = queries.data.astype(np.float32)
        terms_of_queries = []
        weights_of_queries = []
        for row in matching:
            stored = slice(queries.indptr[row], queries.indptr[row + 1])
            terms_of_queries.append(terms[stored])
            weights_of_queries.append(weights[stored])

        hits = self.index.batch_search(
            matching.astype(self.text_type),
            terms_of_queries,
            weights_of_queries,
            k=depth,
            query_cut=self.params.query_cut,
            heap_factor=self.params.heap_factor,
            num_threads=threads,
        )
        result = [np.empty(0, np.int64)] * queries.shape[0]
        for hits_of_query in hits:  # the queries come in any order; each hit names its query
            if hits_of_query:
                query = int(hits_of_query[0][0])
                result[query] = np.array([int(name) for _, _, name in hits_of_query], np.int64)
        return result


def run_search_seismic(job: Job[SearchSeismicParams]) -> None:
    """Search the input `index` with the input `queries` and write a run. All passages' weights are in memory."""
    passages, queries = open_embeddings(job, TermWeights)
    engine = Seismic(job.inputs["index"], passages, job.params)
    order = PassageOrder(job.inputs["dataset"])
    passage_weights = passages.take(0, passages.rows)
    query_weights = queries.take(0, queries.rows)
    best = BestPassages(queries.rows, min(job.params.depth, passages.rows))
    proposed = engine.search(
        query_weights, best.depth, job.execution.workers or count_usable_cores()
    )
    with (
        writing(job) as draft,
        Progress(f"search_seismic {job.key}", queries.rows, "queries") as progress,
    ):
        for query, rows in enumerate(proposed):
            inverted = passage_weights[rows].T.tocsr()
            weights = query_weights[query : query + 1]
            keys = select_best(
                weights, inverted, order.ranks[rows], best.depth, passages.temperature
            )
            best.keys[query] = keys[0]
            progress.add(1)
        lines = write_rows(
            job, draft, iterate_ranked(best, read_embedded_rows(job, queries), order), order
        )
        draft.facts |= {"queries": queries.rows, "lines": lines}
