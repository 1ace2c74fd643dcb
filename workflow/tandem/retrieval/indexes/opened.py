"""A finished index, searched by several threads: the same passages and scores however many there are."""

import json
from itertools import pairwise
from typing import Any

import faiss
import numpy as np

from tandem.artifact import Artifact
from tandem.progress import say
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.exact import CHUNK, Array, Best, pack, pair_scores
from tandem.retrieval.indexes.build import LISTS, chain
from tandem.retrieval.indexes.kmeans import Floats, Labels
from tandem.retrieval.indexes.threads import NONE, Threads, on_gpus

BATCH = 32  # queries of one call; FAISS's last bits depend on it
# Lists stay on disk, read only, beside the index; vectors and codes of other indexes are mapped.
LISTED, MAPPED = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY, faiss.IO_FLAG_MMAP_IFC

Found = tuple[Floats, Labels]


class Index:
    """The index of an artifact.

    Args:
        artifact: of the stage `index`.
        threads: share the queries.
        gpu: see `on_gpus`; a graph stays on the CPU.
    """

    def __init__(self, artifact: Artifact, threads: Threads, gpu: str = NONE) -> None:
        self.meta: dict[str, Any] = json.loads(artifact.path("meta.json").read_text())
        self.rows: int = self.meta["rows"]
        self.threads, self.gpu = threads, gpu
        how = LISTED if LISTS in artifact.manifest["files"] else MAPPED
        opened = [faiss.read_index(str(artifact.path(one["file"])), how) for one in self.meta["indexes"]]
        self.firsts: list[int] = [one["first"] for one in self.meta["indexes"]]
        inner = chain(opened[0])[1]
        listed: Any = faiss.try_extract_index_ivf(opened[0])  # behind whatever refines it
        self.lists: int = listed.nlist if listed else 0
        self.is_graph = isinstance(inner, faiss.IndexHNSW)
        if self.is_graph and gpu != NONE:
            say(f"{artifact.folder}: FAISS has no HNSW on GPUs; the CPU searches")
            self.gpu = NONE
        for index in opened:
            _no_prefetch(chain(index)[1])
        self.parts = [on_gpus(index, self.gpu) for index in opened]
        self.sizes = [int(index.ntotal) for index in opened]

    def tune(self, nprobe: int | None, ef_search: int | None) -> None:
        """Set how thoroughly is searched, by lists a query or candidates in a graph; None leaves FAISS's value."""
        space = faiss.ParameterSpace() if self.gpu == NONE else faiss.GpuParameterSpace()
        for part in self.parts:
            if self.lists and nprobe:
                space.set_index_parameter(part, "nprobe", nprobe)
            if self.is_graph and ef_search:
                space.set_index_parameter(part, "efSearch", ef_search)

    def search(self, queries: Floats, k: int) -> Found:
        """The best passages of each query by the index's own scores.

        Args:
            queries: shape (queries, dim).
            k: passages a query.
        Returns:
            Scores and rows, both (queries, k), best first; row -1 where nothing more was found.
        """
        found = [
            self._of_part(part, queries, min(k, size), first)
            for part, size, first in zip(self.parts, self.sizes, self.firsts, strict=True)
        ]
        scores, rows = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        if len(found) > 1:
            # Of equal scores the lower row comes first: the parts stand in the order of their rows.
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            scores, rows = (np.take_along_axis(each, order, axis=1) for each in (scores, rows))
        return scores, rows

    def _of_part(self, part: Any, queries: Floats, k: int, first: int) -> Found:
        """The best of one part, as rows of the whole."""
        if self.gpu != NONE or len(queries) <= BATCH:
            scores, rows = part.search(queries, k)
        else:
            batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
            found = list(self.threads.map(lambda batch: part.search(batch, k), batches))
            scores, rows = (np.concatenate(each) for each in zip(*found, strict=True))
        return scores, np.where(rows < 0, -1, rows + first)


def _no_prefetch(inner: Any) -> None:
    """Let lists on disk be read as they are searched: reading them before, by further threads, costs each call anew."""
    held: Any = getattr(inner, "invlists", None)
    if held is not None and isinstance(held := faiss.downcast_InvertedLists(held), faiss.OnDiskInvertedLists):
        held.prefetch_nthread = 0


Keys = np.ndarray[Any, np.dtype[np.uint64]]
TOGETHER = 2048  # pairs that a thread scores at a time


def own_keys(scores: Floats, rows: Labels, ranks: Array, temperature: float) -> Keys:
    """The index's scores as packed candidates of `Best`; 0 where nothing was found. All of shape (queries, k)."""
    told = np.where(rows < 0, np.float32(0), scores) / np.float32(temperature)
    made: Keys = np.where(rows < 0, np.uint64(0), pack(told, ranks[rows]))
    return made


def exact_keys(
    passages: Embeddings, queries: Array, rows: Labels, ranks: Array, temperature: float, threads: Threads
) -> Keys:
    """The same with exact scores; vectors are read in the order of their rows.

    Args:
        passages: the vectors the index was made from.
        queries: shape (queries, dim).
        rows: proposed rows, shape (queries, k); -1 where there is none.
        ranks: alphabetical rank of each row's id.
        temperature: scores are divided by it.
        threads: share the pairs.
    """
    flat, exact, width = rows.ravel(), queries.astype(np.float64), rows.shape[1]
    made = np.zeros(len(flat), np.uint64)
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat[order], 0) :]
    edges = np.searchsorted(flat[order], np.arange(len(passages) + 1) * passages.size).tolist()

    def score(piece: tuple[int, slice]) -> None:
        """Keys of some pairs of one block."""
        number, at = piece
        stored = passages.block(number, flat[order[at]] - number * passages.size)
        for start in range(0, len(stored), CHUNK):
            pairs = order[at][start : start + CHUNK]
            scores = pair_scores(exact[pairs // width], stored[start : start + CHUNK], temperature)
            made[pairs] = pack(scores, ranks[flat[pairs]])

    pieces = (
        (number, slice(start, min(start + TOGETHER, stop)))
        for number, (first, stop) in enumerate(pairwise(edges))
        for start in range(first, stop, TOGETHER)
    )
    for _ in threads.map(score, pieces):
        pass
    return made.reshape(rows.shape)


def ranked(keys: Keys, depth: int) -> Best:
    """The best `depth` of packed candidates, shape (queries, k)."""
    best = Best(len(keys), depth)
    best.add(slice(0, len(keys)), keys)
    return best
