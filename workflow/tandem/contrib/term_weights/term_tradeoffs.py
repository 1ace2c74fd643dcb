"""Stage `term_tradeoffs`: a comparison of searches of weights of terms: exact, in Lucene and in Seismic."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from tandem.contrib.term_weights.term_indexes import Impacts, Seismic, round_query_weights
from tandem.contrib.term_weights.term_options import TermTradeoffsParams
from tandem.contrib.term_weights.term_search import QUERIES_PER_PRODUCT, TermWeights, select_best
from tandem.data.rows import PassageOrder
from tandem.errors import UserError
from tandem.extras.measuring import measure_search
from tandem.extras.searched_indexes import space_evenly
from tandem.retrieval.exact import Array, unpack_keys
from tandem.retrieval.retrieve import open_embeddings
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_text
from tandem.store.job import Job, writing

_WEIGHT_BYTES = {"fp16": 6, "fp32": 8}  # bytes of a term's number and its weight

_ComparisonLine = dict[str, str | float | None]
# a search with the first query, the query after the last, and the number of threads
_TimedSearch = Callable[[int, int, int], list[list[str]]]


class _Comparison:
    """The searches that `run` compares, for a sample of queries: exact, in Lucene and in Seismic.

    A search takes the first query, the query after the last, and the number of threads; it returns each query's
    documents.
    """

    def __init__(self, sample: Any, passages: TermWeights, order: PassageOrder, depth: int) -> None:
        self.sample = sample
        self.rounded = round_query_weights(sample)
        self.inverted = passages.take(0, passages.rows).T.tocsr()
        self.passages = passages
        self.order = order
        self.depth = depth

    def search_exactly(self, first: int, stop: int, threads: int) -> list[list[str]]:
        """Search by the exact product, a few queries at a time."""

        def search(start: int) -> Array:
            """Return the packed best passages of some queries."""
            part = self.sample[start : min(start + QUERIES_PER_PRODUCT, stop)]
            return select_best(
                part, self.inverted, self.order.ranks, self.depth, self.passages.temperature
            )

        docs = []
        with ThreadPoolExecutor(threads) as pool:
            for keys_of_part in pool.map(search, range(first, stop, QUERIES_PER_PRODUCT)):
                for keys in keys_of_part:
                    best_first = np.sort(keys[keys > 0])[::-1]
                    _, ranks = unpack_keys(best_first)
                    docs.append(self.order.ids(ranks))
        return docs

    def search_lucene(
        self, lucene: Impacts, first: int, stop: int, threads: int
    ) -> list[list[str]]:
        """Search by rounded weights in Lucene."""
        names = [str(number) for number in range(stop - first)]
        ranked = lucene.search(names, self.rounded[first:stop], self.depth, threads)
        docs_of_names = {name: docs for name, docs, _ in ranked}
        return [docs_of_names.get(name, []) for name in names]

    def search_seismic(
        self, engine: Seismic, first: int, stop: int, threads: int
    ) -> list[list[str]]:
        """Search by Seismic's own scores."""
        results = engine.search(self.sample[first:stop], self.depth, threads)
        return [self.order.ids(self.order.ranks[rows].astype(np.int64)) for rows in results]


def run(job: Job[TermTradeoffsParams]) -> None:
    """Measure recall, latency, terms and bytes; write `tradeoffs.csv` as `tradeoffs` does, with `active_terms` added.

    Seismic ranks by its own scores here. Latency is measured with one query at a time and one thread, throughput with
    all queries together; times differ from run to run. The weights of all passages are in memory.
    """
    params = job.params
    passages, queries = open_embeddings(job, TermWeights)
    order = PassageOrder(job.inputs["dataset"])
    sample = queries.take(0, queries.rows)[space_evenly(queries.rows, params.queries)]
    sample = sample[np.flatnonzero(np.diff(sample.indptr))]
    count = sample.shape[0]
    if not count:
        raise UserError(
            f"{queries.artifact.folder}: no query has a weight above 0; there is nothing to search for"
        )

    comparison = _Comparison(sample, passages, order, max(params.k))
    index = job.inputs["index"]
    with closing(Impacts(index, job.execution)) as lucene, writing(job) as draft:
        best = [np.array(docs) for docs in comparison.search_exactly(0, count, lucene.threads)]
        lines: list[_ComparisonLine] = []

        def measure(
            name: str, factory: str, search: _TimedSearch, size: float, artifact: Artifact
        ) -> None:
            """Measure one search and add its line; `size` is in bytes per passage."""

            def search_alone(query: int) -> object:
                return search(query, query + 1, 1)

            def search_together() -> list[list[str]]:
                return search(0, count, lucene.threads)

            retrieved = [np.array(docs) for docs in search_together()]
            measures = measure_search(
                retrieved, best, params.k, search_alone, search_together, params.repeats
            )
            lines.append(
                {
                    "index": name,
                    "nprobe": None,
                    "ef_search": None,
                    "rescore": False,
                    **measures,
                    "factory": factory,
                    "bytes_per_vector": size,
                    "key": artifact.key,
                    "active_terms": passages.active,
                }
            )

        exact_size = _WEIGHT_BYTES[passages.dtype] * passages.active
        measure("exact", "products", comparison.search_exactly, exact_size, passages.artifact)
        lucene_size = index.manifest.facts["bytes_per_passage"]
        measure("lucene", "impacts", partial(comparison.search_lucene, lucene), lucene_size, index)
        for options, built in zip(params.seismic, job.many("seismic"), strict=True):
            engine = Seismic(built, passages, options)
            seismic_size = built.manifest.facts["bytes_per_passage"]
            measure(
                options.name,
                "seismic",
                partial(comparison.search_seismic, engine),
                seismic_size,
                built,
            )

        write_text(
            draft.path("tradeoffs.csv"), csv_text(lines[0], (line.values() for line in lines))
        )
        draft.facts["lines"] = len(lines)
        draft.facts["threads"] = lucene.threads
        draft.facts["active_query_terms"] = queries.active
