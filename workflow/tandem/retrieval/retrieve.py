"""Stage `retrieve`: the best passages of each query by exact inner product, ties by document id.

Each shard searches a range of blocks; the stage searches those that are left. Split, engine and memory change no byte.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from tandem.cluster.progress import Progress, say
from tandem.cluster.scheduler import list_offered
from tandem.cluster.work import WORK_FOLDER, Pieces, compute_origin
from tandem.config.retrieval import CPU_ENGINE, find_gpu_engine, search_engine
from tandem.data.collection import QUERIES, Collection
from tandem.data.columns import RankedRows
from tandem.data.rows import PassageOrder, Rows, index_queries
from tandem.data.runs import write_rows
from tandem.errors import UserError
from tandem.retrieval.embeddings import FP32, Embeddings, Stretches, name_block
from tandem.retrieval.exact import (
    Array,
    BestPassages,
    SearchEngine,
)
from tandem.retrieval.inputs import require_dataset, require_one_encoding, require_passages
from tandem.stages.retrieval import RetrieveParams
from tandem.store.artifact import check_files
from tandem.store.job import Job, writing

SEARCH_MEMORY_MIB = 2048  # MiB, the default of `execution.search_memory`
_Stored = TypeVar("_Stored", bound=Embeddings)


def open_embeddings(job: Job[Any], kind: type[_Stored]) -> tuple[_Stored, _Stored]:
    """Return the inputs `passages` and `queries`, opened by the class `kind`.

    Raises:
        UserError: two models made them, in two types, of another dataset or split, or an index is of other passages.
    """
    require_passages(job, "passages")
    require_dataset(job, "queries")
    require_one_encoding(job, "passages", "queries")
    passages = job.inputs["passages"]
    queries = job.inputs["queries"]
    split = queries.params["split"]
    if split != job.params.split:
        raise UserError(
            f"{queries.folder}: holds queries of the split {split}; expected {job.params.split}"
        )

    opened_passages = kind(passages, "passages")
    opened_queries = kind(queries, "queries")
    dtypes = (opened_passages.dtype, opened_queries.dtype)
    if FP32 in dtypes and dtypes[0] != dtypes[1]:
        raise UserError(
            f"retrieve: passages are {dtypes[0]} and queries {dtypes[1]}; fp32 is needed of both or none"
        )

    for role, artifact in job.inputs.items():
        if role.partition(".")[0] not in ("index", "seismic"):
            continue
        source = Path(artifact.upstream["passages"]).name
        if source != passages.key:
            raise UserError(f"{artifact.folder}: was made from {source}; expected {passages.key}")
    return opened_passages, opened_queries


def open_search_engine(name: str) -> SearchEngine:
    """Return an engine of exact search; `auto`: a package's on a GPU, else FAISS."""
    if name == "auto":
        name = choose_search_engine()
    engine: SearchEngine = search_engine[name]()
    return engine


def choose_search_engine() -> str:
    """Return the engine of exact search for this machine: on a GPU that of a package, else FAISS."""
    if not list_offered(os.environ):
        return CPU_ENGINE
    engine = find_gpu_engine()
    if engine is None:
        say("no engine of exact search is for GPUs: FAISS searches on the CPU")
    return engine or CPU_ENGINE


def read_embedded_rows(job: Job[Any], queries: Embeddings) -> Rows:
    """Return the row of each embedded query in the input `dataset`, after a check of its file of queries."""
    check_files(job.inputs["dataset"], [QUERIES])
    return index_queries(Collection(job.inputs["dataset"])).rows(queries.read_query_ids())


def iterate_ranked(best: BestPassages, queries: Rows, order: PassageOrder) -> Iterator[RankedRows]:
    """Yield (the query's row, its passages' rows, their scores) of each row of `best`, best first."""
    for row, query in enumerate(queries.tolist()):
        ranks, scores = best.rank(row)
        yield query, order.by_rank[ranks].astype(np.int64), scores


# a range of blocks, and the best passages that a shard has found in them: packed, shape (queries, depth)
Partial = tuple[range, Array]


class Retrieval:
    """Search some blocks for all queries, in memory that `execution.search_memory` bounds.

    A quarter of it is for the running results of a group of queries, half for the engine, a quarter for merging.

    Raises:
        UserError: passages and queries do not fit together.
    """

    vectors: ClassVar[type[Embeddings]] = Embeddings  # the class that reads them

    def __init__(self, job: Job[RetrieveParams]) -> None:
        self.job = job
        self.passages, self.queries = open_embeddings(job, self.vectors)
        self.order = PassageOrder(job.inputs["dataset"])
        self.depth = min(job.params.depth, self.passages.rows)
        self.memory = int((job.execution.search_memory or SEARCH_MEMORY_MIB) * (1 << 20))
        # A query needs its best passages twice, the second time for a copy, and its vector.
        bytes_per_query = 16 * self.depth + self.queries.row_bytes
        self.group = min(self.queries.rows, max(1, self.memory // 4 // bytes_per_query))
        self.groups = range(0, self.queries.rows, self.group)  # the first query of each
        files = {
            role: job.inputs[role].manifest.checksums for role in ("dataset", "passages", "queries")
        }
        self.pieces = Pieces(job.out / WORK_FOLDER, compute_origin(job, files))

    def write(self, blocks: range) -> None:
        """Search these blocks and write the result for the stage: `work/<first>-<stop>.npy`."""

        def save(path: Path) -> None:
            """Write the best passages of all queries, group by group."""
            merged = np.lib.format.open_memmap(
                path, "w+", np.uint64, (self.queries.rows, self.depth)
            )
            first = 0
            for keys in self.search(blocks):
                merged[first : first + len(keys)] = keys
                first += len(keys)
            merged.flush()

        self.pieces.write(
            f"{blocks.start}-{blocks.stop}.npy", save, blocks=[blocks.start, blocks.stop]
        )

    def read_partials(self, within: range | None = None) -> list[Partial]:
        """Return the complete results of shards, memory-mapped, in the order of the blocks; no block occurs twice.

        Args:
            within: return only results that have some of these blocks; no byte of the others is read.
        """
        whole: list[range] = []
        for path in self.pieces.folder.glob("*.json"):
            first, stop = map(int, path.stem.split("-"))
            blocks = range(first, stop)
            if within is not None and set(blocks).isdisjoint(within):
                continue
            if self.pieces.facts(f"{first}-{stop}.npy"):
                whole.append(blocks)

        partials: list[Partial] = []
        # Of several results that begin at the same block the longest comes first.
        for blocks in sorted(whole, key=lambda blocks: (blocks.start, -blocks.stop)):
            if partials and blocks.start < partials[-1][0].stop:
                continue
            path = self.pieces.folder / f"{blocks.start}-{blocks.stop}.npy"
            partials.append((blocks, np.load(path, mmap_mode="r", allow_pickle=False)))
        return partials

    def list_missing(self, partials: Sequence[Partial]) -> list[int]:
        """Return the blocks that no shard has searched."""
        missing = set(range(len(self.passages)))
        for blocks, _ in partials:
            missing.difference_update(blocks)
        return sorted(missing)

    def search(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Yield the packed best passages of these blocks, a group of queries at a time, shape (group, depth)."""
        if not numbers:
            for first in self.groups:
                yield np.zeros((min(self.group, self.queries.rows - first), self.depth), np.uint64)
            return
        workers = self.job.execution.workers
        names = ["meta.json", *map(name_block, numbers)]
        with ThreadPoolExecutor(workers or 1) as threads:
            list(threads.map(lambda name: check_files(self.passages.artifact, [name]), names))
        engine = open_search_engine(self.job.execution.engine)
        memory = self.memory // 2
        if self.job.execution.search_memory is None:
            memory = max(memory, engine.least_memory)
        with Progress(f"retrieve {self.job.key}", 0, "passages") as progress:
            stretches = Stretches(self.passages, numbers, self.order.ranks, progress)
            progress.total = stretches.rows * len(self.groups)
            for first in self.groups:
                queries = self.queries.take(first, first + self.group)
                yield engine.search(queries, stretches, self.depth, memory, workers)

    def rank(self, partials: Sequence[Partial]) -> Iterator[RankedRows]:
        """Yield (the query's row, its passages' rows, their scores) of each query, best first, of all blocks."""
        rows = read_embedded_rows(self.job, self.queries)
        searched = self.search(self.list_missing(partials))
        # Merging copies the keys twice: joined in one array, and partitioned.
        step = max(1, self.memory // 4 // (24 * self.depth * (len(partials) + 1)))
        for first, keys in zip(self.groups, searched, strict=True):
            for start in range(0, len(keys), step):
                own = keys[start : start + step]
                best = BestPassages(len(own), self.depth)
                best.keys[:] = own
                queries = slice(first + start, first + start + len(own))
                for _, partial in partials:
                    best.add(slice(0, len(own)), partial[queries])
                yield from iterate_ranked(best, rows[queries], self.order)


def run_shard(job: Job[RetrieveParams], kind: type[Retrieval] = Retrieval) -> dict[str, object]:
    """Search this shard's range of blocks."""
    retrieval = kind(job)
    shard = job.execution.shard or 0
    shards = job.execution.shards
    count = len(retrieval.passages)
    blocks = range(count * shard // shards, count * (shard + 1) // shards)
    if not set(blocks).isdisjoint(retrieval.list_missing(retrieval.read_partials(blocks))):
        retrieval.write(blocks)
    return {"blocks": [blocks.start, blocks.stop]}


def run(job: Job[RetrieveParams], kind: type[Retrieval] = Retrieval) -> None:
    """Search the blocks that no shard has searched, merge, and write the run."""
    retrieval = kind(job)
    with writing(job) as draft:
        partials = retrieval.read_partials()
        lines = write_rows(job, draft, retrieval.rank(partials), retrieval.order)
        draft.facts |= {"queries": retrieval.queries.rows, "lines": lines, "shards": len(partials)}
    shutil.rmtree(retrieval.pieces.folder, ignore_errors=True)
