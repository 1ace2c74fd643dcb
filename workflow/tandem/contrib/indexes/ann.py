"""Search through a finished index: it proposes passages, and exact scores of the stored vectors, or its own, rank them.

Stage `ann`: a run through an index, and its recall. This module needs no torch.
"""

import json
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from tandem.cluster.progress import Progress, say, warn
from tandem.contrib.indexes.copies import Copies
from tandem.contrib.indexes.index import INVERTED_LISTS_FILE, find_graph, has_gpu_form, split_chain
from tandem.contrib.indexes.options import AnnParams
from tandem.data.columns import Floats, RankedRows
from tandem.data.rows import PassageOrder, Rows
from tandem.data.runs import write_rows
from tandem.errors import UserError
from tandem.extras.faiss_gpus import NONE, explain_errors, lease_gpus, on_gpus
from tandem.extras.measuring import list_shares, list_shares_by_score
from tandem.extras.searched_indexes import (
    COPIES_FILE,
    MOST_ON_GPU,
    ShortLists,
    opened_index,
    served_index,
    space_evenly,
)
from tandem.extras.serving import Served
from tandem.retrieval.embeddings import Embeddings, Stretches
from tandem.retrieval.exact import (
    PAIRS_PER_CHUNK,
    STRETCH_BYTES,
    Array,
    BestPassages,
    pack_keys,
    score_vector_pairs,
)
from tandem.retrieval.faiss_search import QUERIES_PER_THREAD, BlockSearch, Threads, open_threads
from tandem.retrieval.retrieve import (
    iterate_ranked,
    open_embeddings,
    read_embedded_rows,
)
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

QUERIES_PER_SEARCH = 1024  # queries searched and rescored together
_QUERIES_PER_CALL = 32  # queries per call of FAISS, whose last bits depend on it
_PAIRS_PER_TASK = 2048  # pairs that a thread scores at a time
_LEAST_RECALL = 0.9  # compared with exact search; less is worth a warning
# Lists stay on disk, read only, next to the index; vectors and codes of other indexes are mapped.
_LISTED = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY
MAPPED = faiss.IO_FLAG_MMAP_IFC

_ScoredRows = tuple[Floats, Rows]  # scores and rows


@opened_index("index")
class OpenedIndex:
    """The opened index of an artifact; `threads`, or GPUs where FAISS supports it (see `on_gpus`), share the queries.

    A graph's search ends when it sees as many better candidates as it is wide. If a list is then short, the query is
    searched for again, with the width of the list; not if `widen` is False.
    """

    def __init__(
        self, artifact: Artifact, threads: Threads, gpu: str = NONE, widen: bool = True
    ) -> None:
        meta = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = meta["rows"]
        self.factory: str = meta["factory"]
        self.threads = threads
        self.gpu = gpu
        flags = _LISTED if INVERTED_LISTS_FILE in artifact.manifest.files else MAPPED
        with explain_errors(f"{artifact.folder}: FAISS cannot read its index"):
            indexes = [
                faiss.read_index(str(artifact.path(part["file"])), flags)
                for part in meta["indexes"]
            ]
        # the number of the first node in each part
        self.firsts: list[int] = [part["first"] for part in meta["indexes"]]
        self.pairs: Array | None = None  # copies, whose vectors are in the index once
        if COPIES_FILE in artifact.manifest.files:
            self.pairs = np.load(artifact.path(COPIES_FILE), allow_pickle=False)
        self.copies = None if self.pairs is None else Copies(self.pairs)
        inner = split_chain(indexes[0])[1]
        # number of signs per vector, if the index stores signs
        self.signs = int(inner.nbits) if isinstance(inner, faiss.IndexLSH) else 0
        inverted: Any = faiss.try_extract_index_ivf(indexes[0])  # inside an index that refines it
        self.lists: int = inverted.nlist if inverted else 0
        graph = find_graph(indexes[0])
        self.is_graph = graph is not None
        self.widen = widen and graph is not None
        self.width = int(graph.hnsw.efSearch) if self.is_graph else 0
        self.nprobe: int | None = None  # None: FAISS's default
        if gpu != NONE and not has_gpu_form(indexes[0]):
            say(f"{artifact.folder}: FAISS has no {self.factory} on GPUs; the CPU searches")
            self.gpu = NONE
        for index in indexes:
            stored: Any = getattr(split_chain(index)[1], "invlists", None)
            stored = None if stored is None else faiss.downcast_InvertedLists(stored)
            if isinstance(stored, faiss.OnDiskInvertedLists):
                # lists are read during the search: further threads would cost time in each call
                stored.prefetch_nthread = 0
        self.parts = [on_gpus(index, self.gpu) for index in indexes]
        self.sizes = [int(index.ntotal) for index in indexes]

    def tune(self, nprobe: int | None, ef_search: int | None) -> None:
        """Set how many lists per query, or candidates in a graph, are searched; None keeps FAISS's value.

        A `UserError` for more lists than a GPU can search.
        """
        if self.lists and nprobe and nprobe > MOST_ON_GPU and self.gpu != NONE:
            raise UserError(
                f"{self.factory}: nprobe is {nprobe}, but a GPU searches at most {MOST_ON_GPU} lists; lower it"
            )
        self.width = ef_search or self.width
        self.nprobe = nprobe
        for part in self.parts:
            if self.lists and nprobe:
                self._set(part, "nprobe", nprobe)
            if self.is_graph and ef_search:
                self._set(part, "efSearch", ef_search)

    def _set(self, part: Any, name: str, value: int) -> None:
        space = faiss.ParameterSpace() if self.gpu == NONE else faiss.GpuParameterSpace()
        space.set_index_parameter(part, name, value)

    def break_ties(self, ranks: Array) -> None:
        """Order copies by their ranks, shape (rows,), and no longer by their rows."""
        if self.pairs is not None:
            self.copies = Copies(self.pairs, ranks)

    def find_remedy(self, rescore: bool) -> str:
        """Return a remedy that makes a search find more; it is not `nprobe` if all lists are searched already."""
        if self.lists and (self.nprobe or 1) < self.lists:
            return "raise nprobe"
        if self.is_graph:
            return "raise ef_search"
        return "raise rescore_factor" if rescore else "set rescore to true"

    def search(self, queries: Floats, k: int) -> _ScoredRows:
        """Return the `k` best passages of queries, shape (queries, dim), by the index's own scores.

        Returns scores and rows, both (queries, at most k), best first; row -1 where there are no more passages.
        """
        scores_of_parts = []
        rows_of_parts = []
        for part, size, first in zip(self.parts, self.sizes, self.firsts, strict=True):
            part_scores, part_rows = self._search_part(part, queries, min(k, size), first)
            scores_of_parts.append(part_scores)
            rows_of_parts.append(part_rows)
        scores = np.concatenate(scores_of_parts, axis=1)
        rows = np.concatenate(rows_of_parts, axis=1)

        if len(self.parts) > 1:
            # Of equal scores the lower row comes first: parts are in the order of their rows.
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            scores = np.take_along_axis(scores, order, axis=1)
            rows = np.take_along_axis(rows, order, axis=1)
        if self.copies is None:
            return scores, rows
        missing = ((0, 0), (0, k - rows.shape[1]))  # fewer nodes than k may represent k rows
        wide_scores = np.pad(scores, missing)
        wide_rows = np.pad(self.copies.find_rows(rows), missing, constant_values=-1)
        return self.copies.expand(wide_scores, wide_rows)

    def decode(self, rows: Rows) -> Floats:
        """Return the vectors that the index's codes represent, of rows in any order, shape (rows, dim); not on GPUs."""
        vectors = np.empty((len(rows), self.parts[0].d), np.float32)
        nodes = rows if self.copies is None else self.copies.find_nodes(rows)
        for part, size, first in zip(self.parts, self.sizes, self.firsts, strict=True):
            inverted = faiss.try_extract_index_ivf(part)
            if inverted is not None:
                inverted.make_direct_map()  # done once: afterwards it knows the place of each row's code
            is_own = (nodes >= first) & (nodes < first + size)
            own = np.ascontiguousarray(nodes[is_own] - first, np.int64)
            with explain_errors(
                f"FAISS does not give the vectors of {self.factory}; set rescore to true"
            ):
                vectors[is_own] = part.reconstruct_batch(own)
        return vectors

    def _search_part(self, part: Any, queries: Floats, k: int, first: int) -> _ScoredRows:
        """Search one part whose first row is `first`; if a graph's list is short, search again as wide as the list."""
        scores, rows = self._search_batches(part, queries, k)
        short = np.flatnonzero(rows[:, -1] < 0)
        if self.widen and len(short):
            self._set(part, "efSearch", max(k, self.width))
            scores[short], rows[short] = self._search_batches(part, queries[short], k)
            self._set(part, "efSearch", self.width)
        if self.signs:  # a Hamming distance of h: the inner product of vectors of ±1 is signs - 2 h
            scores = self.signs - 2 * scores
        return scores, np.where(rows < 0, -1, rows + first)

    def _search_batches(self, part: Any, queries: Floats, k: int) -> _ScoredRows:
        size = _QUERIES_PER_CALL if self.gpu == NONE else len(queries)
        batches = [queries[start : start + size] for start in range(0, len(queries), size)]
        run = self.threads.map if len(batches) > 1 else map
        with explain_errors(f"FAISS cannot search {self.factory}"):
            results = list(run(lambda batch: part.search(batch, k), batches))
        scores, rows = zip(*results, strict=True)
        return np.concatenate(scores), np.concatenate(rows)


class VectorSearcher:
    """Searches through an index of `passages`; `ranks` are the alphabetical ranks of their ids.

    With `rescore` the index proposes `factor` times the depth and exact scores decide; otherwise its own scores decide.
    """

    def __init__(
        self, index: OpenedIndex, passages: Embeddings, ranks: Array, rescore: bool, factor: int
    ) -> None:
        self.index = index
        self.passages = passages
        self.ranks = ranks
        self.rescore = rescore
        self.factor = factor if rescore else 1
        index.break_ties(ranks)

    def search(self, queries: Array, depth: int) -> BestPassages:
        """Return the best passages of queries, shape (queries, dim)."""
        depth = min(depth, self.index.rows)
        k = min(depth * self.factor, self.index.rows)
        if self.index.gpu != NONE and k > MOST_ON_GPU:
            problem = f"{k} passages per query are requested of a GPU, which gives {MOST_ON_GPU}"
            what = "rescore_factor" if self.factor > 1 else "how deep the run is"
            raise UserError(f"ann: {problem}; lower {what}")
        scores, rows = self.index.search(np.ascontiguousarray(queries, np.float32), k)
        best = BestPassages(len(queries), depth)
        if self.rescore:
            keys = self._score_exactly(queries, rows)
        else:
            is_missing = rows < 0
            scaled = np.where(is_missing, np.float32(0), scores) / np.float32(
                self.passages.temperature
            )
            keys = np.where(is_missing, np.uint64(0), pack_keys(scaled, self.ranks[rows]))
        best.add(slice(0, len(queries)), keys)
        return best

    def _score_exactly(self, queries: Array, rows: Rows) -> Array:
        """Return exact scores as packed candidates of `BestPassages`, 0 for row -1, in rows' shape, (queries, k).

        Vectors are read in the order of their rows, and threads share the pairs.
        """
        flat = rows.ravel()
        exact = queries.astype(np.float64)
        width = rows.shape[1]
        keys = np.zeros(len(flat), np.uint64)
        order = np.argsort(flat, kind="stable")
        order = order[np.searchsorted(flat[order], 0) :]  # without rows that are -1

        def score(first: int) -> None:
            """Compute exact scores of the pairs in `order` from this position on."""
            pairs_of_task = order[first : first + _PAIRS_PER_TASK]
            vectors = self.passages.pick(flat[pairs_of_task])
            for start in range(0, len(pairs_of_task), PAIRS_PER_CHUNK):
                chunk = slice(start, start + PAIRS_PER_CHUNK)
                pairs = pairs_of_task[chunk]
                scores = score_vector_pairs(
                    exact[pairs // width], vectors[chunk], self.passages.temperature
                )
                keys[pairs] = pack_keys(scores, self.ranks[flat[pairs]])

        # For few pairs, handing over to threads costs more than it saves.
        run = self.index.threads.map if len(order) > _PAIRS_PER_TASK else map
        list(run(score, range(0, len(order), _PAIRS_PER_TASK)))
        return keys.reshape(rows.shape)


@served_index("index")
def serve_index(
    part: Served, passages: Embeddings, ranks: Array, threads: Threads
) -> VectorSearcher:
    """Return the search by which a part of `tandem search` answers; it is the stage's."""
    params = part.params_as(AnnParams)
    index = OpenedIndex(part.inputs["index"], threads)
    index.tune(params.nprobe, params.ef_search)
    return VectorSearcher(index, passages, ranks, params.rescore, params.rescore_factor)


def search_index(
    job: Job[AnnParams], searcher: VectorSearcher, queries: Embeddings, order: PassageOrder
) -> Iterator[RankedRows]:
    """Yield (the query's row, its passages' rows, their scores) for each query, a bounded group at a time."""
    rows = read_embedded_rows(job, queries)
    with Progress(f"ann {job.key}", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, QUERIES_PER_SEARCH):
            group = queries.take(first, first + QUERIES_PER_SEARCH)
            best = searcher.search(group, job.params.depth)
            yield from iterate_ranked(best, rows[first : first + QUERIES_PER_SEARCH], order)
            progress.add(len(group))


def list_shares_found(
    ours: BestPassages, exact: BestPassages, k: int, rescored: bool
) -> list[float]:
    """Return each query's share of exact search's top k, by scores if they are exact, else by passages."""
    if rescored:
        return list_shares_by_score(ours, exact, k)
    return list_shares(ours.list_ranks(), exact.list_ranks(), k)


def run(job: Job[AnnParams]) -> None:
    """Search and write the run, and its recall at 10, 100 and the depth as far as it goes; warn of missing passages."""
    params = job.params
    depth = job.params.depth
    passages, queries = open_embeddings(job, Embeddings)
    gpu = lease_gpus(job)
    order = PassageOrder(job.inputs["dataset"])
    with open_threads(job.execution.workers) as threads, writing(job) as draft:
        index = OpenedIndex(job.inputs["index"], threads, gpu)
        index.tune(params.nprobe, params.ef_search)
        searcher = VectorSearcher(
            index, passages, order.ranks, params.rescore, params.rescore_factor
        )
        short = ShortLists(min(depth, passages.rows))
        lines = write_rows(
            job, draft, short.count(search_index(job, searcher, queries, order)), order
        )
        draft.facts |= {"queries": queries.rows, "lines": lines, "gpu": index.gpu}
        short.warn(job, draft, index.find_remedy(params.rescore))
        if params.recall_queries:
            sample = space_evenly(queries.rows, params.recall_queries)
            ks = sorted({min(10, depth), min(100, depth), depth})
            shares: dict[int, list[float]] = {k: [] for k in ks}
            for first in range(0, len(sample), QUERIES_PER_SEARCH):
                group = queries.pick(sample[first : first + QUERIES_PER_SEARCH])
                ours = searcher.search(group, depth)
                exact = search_exactly(passages, group, order.ranks, depth, threads)
                for k, own in shares.items():
                    own += list_shares_found(ours, exact, k, params.rescore)
            recall = {str(k): round(float(np.mean(own)), 4) for k, own in shares.items()}
            draft.facts["recall"] = recall
            draft.facts["recall_queries"] = len(sample)
            low = [
                f"{share:.1%} of the first {k}"
                for k, share in recall.items()
                if share < _LEAST_RECALL
            ]
            if low:
                found = f"of the passages of exact search it finds {', '.join(low)}, in {len(sample):,} queries"
                warn(job, draft, f"{found}; {index.find_remedy(params.rescore)}")


def search_exactly(
    passages: Embeddings, queries: Array, ranks: Array, depth: int, threads: Threads
) -> BestPassages:
    """Return each query's exact top `depth`, by a pass over all passages; `ranks` has the rank of each row's id."""
    best = BestPassages(len(queries), min(depth, passages.rows))
    with Progress("exact search", passages.rows, "passages") as progress:
        stretches = Stretches(passages, range(len(passages)), ranks, progress)
        for pieces, own in stretches.read(STRETCH_BYTES // (4 * passages.dimension)):
            BlockSearch(stretches.join(pieces), own, passages.temperature).add_to(
                best, queries, threads, QUERIES_PER_THREAD
            )
    return best
