"""What shards of a search have found: each query's best passages of some blocks, for the stage to merge."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Job, check_files, sha256, write_json, writing
from tandem.data.order import Order
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.leases import offered
from tandem.progress import Progress
from tandem.retrieval.embeddings import Embeddings, Stretches, Vectors, block_name
from tandem.retrieval.exact import Array, Best
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import read_shard


@dataclass(frozen=True)
class Partial:
    """One shard's: packed scores and ranks (`exact.pack`), shape (queries, any), memory-mapped, for some blocks."""

    blocks: range
    keys: Array


class Partials:
    """The files of a search's shards, beside its artifact.

    A file is `shards/<first>-<stop>.npy`, named by its blocks; beside it `.told` says what it was made from, so that
    what was found for another search does not count.

    Args:
        folder: the artifact's.
        origin: digest of everything that decides what is found.
    """

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder, self.origin = folder / "shards", origin

    def path(self, blocks: range) -> Path:
        """Where a shard's find is kept."""
        return self.folder / f"{blocks.start}-{blocks.stop}.npy"

    def write(self, blocks: range, shape: tuple[int, int], groups: Iterable[Array]) -> None:
        """Keep what was found in `blocks`, as it comes: packed, groups of queries one after the other."""
        path = self.path(blocks)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial, first = path.with_name(f".{path.name}.{os.getpid()}"), 0
        made = np.lib.format.open_memmap(partial, "w+", np.uint64, shape)
        for keys in groups:
            made[first : first + len(keys)] = keys
            first += len(keys)
        made.flush()
        os.replace(partial, path)
        told = {"origin": self.origin, "blocks": [blocks.start, blocks.stop], "sha256": sha256(path)}
        write_json(path.with_suffix(".told"), told)

    def there(self) -> list[Partial]:
        """What was found and is whole, no block twice, in the order of the blocks."""
        found: list[Partial] = []
        told = filter(None, map(self._told, self.folder.glob("*.told")))
        for blocks in sorted(told, key=lambda blocks: (blocks.start, -blocks.stop)):
            if not found or blocks.start >= found[-1].blocks.stop:
                found.append(Partial(blocks, np.load(self.path(blocks), mmap_mode="r", allow_pickle=False)))
        return found

    def _told(self, path: Path) -> range | None:
        """The blocks of a file; None if it is damaged or was made from something else."""
        try:
            told = json.loads(path.read_text())
            blocks = range(*told["blocks"])
            whole = told["origin"] == self.origin and told["sha256"] == sha256(self.path(blocks))
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return blocks if whole else None

    def remove(self) -> None:
        """Delete all of it, and what killed shards left."""
        for pattern in ("*.told", "*.npy", ".*.npy.*"):
            for path in self.folder.glob(pattern):
                path.unlink()


def missing(count: int, there: Sequence[Partial]) -> list[int]:
    """Those of `count` blocks that no shard has searched."""
    done = {number for one in there for number in one.blocks}
    return [number for number in range(count) if number not in done]


MEMORY = 2048  # MiB, where `execution.search_memory` says nothing
Engine = Callable[[Vectors, Stretches, int, int, int | None], Array]


def open_embeddings(job: Job) -> tuple[Embeddings, Embeddings]:
    """Open passages and queries; a `UserError` unless one model made both from this dataset and these token ids."""
    require_dataset(job, "passages", "queries")
    passages, queries = job.inputs["passages"], job.inputs["queries"]
    for role in ("model", "tokens"):
        left, right = (Path(artifact.upstream[role]).name for artifact in (passages, queries))
        if left != right:
            raise UserError(f"retrieve: passages were embedded with the {role} {left}, queries with {right}")
    split = queries.params["split"]
    if split != job.params["split"]:
        raise UserError(f"{queries.folder}: holds queries of the split {split}; expected {job.params['split']}")
    return Embeddings(passages, "passages"), Embeddings(queries, "queries")


def engine(setting: str) -> Engine:
    """What searches: torch on a GPU, else FAISS, unless told; imported only now, as a process holds one of them."""
    if setting == "torch" or (setting == "auto" and offered(os.environ)):
        from tandem.retrieval.torch_search import search
    else:
        from tandem.retrieval.faiss_search import search
    return search


class Retrieval:
    """A search of some blocks for all queries, in memory that `execution.search_memory` bounds.

    A quarter of it holds running results of a group of queries, half what the engine computes with; merging takes a
    quarter again.

    Raises:
        UserError: passages and queries do not fit together.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.passages, self.queries = open_embeddings(job)
        self.order = Order(job.inputs["dataset"])
        self.depth: int = min(job.params["depth"], self.passages.rows)
        self.memory = int((job.execution.search_memory or MEMORY) * (1 << 20))
        # Of a query: its best passages and a copy of them, and its vector as fp16, float32 and float64.
        each = 16 * self.depth + 16 * self.passages.dimension
        self.group = min(self.queries.rows, max(1, self.memory // 4 // each))
        files = {role: job.inputs[role].manifest["files"] for role in ("dataset", "passages", "queries")}
        told = json.dumps([job.params, files], sort_keys=True)
        self.partials = Partials(job.out, hashlib.sha256(told.encode()).hexdigest())

    def groups(self) -> range:
        """First query of each group."""
        return range(0, self.queries.rows, self.group)

    def search(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Packed best passages of these blocks, a group of queries at a time, shape (group, depth)."""
        if not numbers:
            for first in self.groups():
                yield np.zeros((min(self.group, self.queries.rows - first), self.depth), np.uint64)
            return
        workers = self.job.execution.workers
        names = ["meta.json", *map(block_name, numbers)]
        with ThreadPoolExecutor(workers or 1) as threads:
            list(threads.map(lambda name: check_files(self.passages.artifact, [name]), names))
        run = engine(self.job.execution.engine)
        with Progress(f"retrieve {self.job.key}", 0, "passages") as progress:
            stretches = Stretches(self.passages, numbers, self.order.ranks, progress)
            progress.total = stretches.rows * len(self.groups())
            for first in self.groups():
                asked = self.queries.take(first, first + self.group)
                yield run(asked, stretches, self.depth, self.memory // 2, workers)

    def ranked(self, there: Sequence[Partial]) -> Iterator[tuple[str, list[str], Floats]]:
        """(query, documents, scores) of each query, best first, of all blocks."""
        ids: list[str] = pq.read_table(self.queries.artifact.path("ids.parquet"))["query_id"].to_pylist()
        own = self.search(missing(len(self.passages), there))
        # What is merged is copied twice: together, and in parts.
        step = max(1, self.memory // 4 // (24 * self.depth * (len(there) + 1)))
        for first, found in zip(self.groups(), own, strict=True):
            for start in range(0, len(found), step):
                best = Best(len(found[start : start + step]), self.depth)
                best.keys[:] = found[start : start + step]
                for one in there:
                    best.add(slice(0, len(best.keys)), one.keys[first + start : first + start + len(best.keys)])
                for query in range(len(best.keys)):
                    ranks, scores = best.ranked(query)
                    yield ids[first + start + query], self.order.ids(ranks), scores


def run_shard(words: list[str]) -> int:
    """Command `retrieve-shard`: search this shard's range of blocks; see `read_shard`."""
    job, shard, shards = read_shard("retrieve", words)
    made = Retrieval(job)
    count = len(made.passages)
    blocks = range(count * shard // shards, count * (shard + 1) // shards)
    if set(missing(count, made.partials.there())) & set(blocks):
        made.partials.write(blocks, (made.queries.rows, made.depth), made.search(blocks))
    write_json(Path(words[words.index("--out") + 1]), {"blocks": [blocks.start, blocks.stop]})
    return 0


def run(job: Job) -> None:
    """Search what no shard has searched, merge, and write `run.trec`."""
    made = Retrieval(job)
    with writing(job) as draft:
        there = made.partials.there()
        lines = write_run(draft.path("run.trec"), made.ranked(there), job.key)
        draft.facts |= {"queries": made.queries.rows, "lines": lines, "shards": len(there)}
    made.partials.remove()
