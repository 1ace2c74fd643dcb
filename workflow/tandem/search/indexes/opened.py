"""A finished index, searched by several threads: the same passages and scores however many there are."""

import json
from typing import Any

import faiss
import numpy as np

from tandem.cluster.progress import say
from tandem.search.indexes.build import LISTS, chain
from tandem.search.indexes.gpus import NONE, on_gpus
from tandem.search.indexes.kmeans import Labels
from tandem.search.indexes.sample import Floats
from tandem.search.indexes.threads import Threads
from tandem.store.artifact import Artifact

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
        how = LISTED if LISTS in artifact.manifest.files else MAPPED
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
