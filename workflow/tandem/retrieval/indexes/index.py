"""Stage `index`: an index of the passages' vectors, in parts of a fixed number of rows.

Shards fill whole parts, the stage fills those still missing and puts them together: the bytes are the same however the
work was split, and a killed build continues after its last finished part. No torch here, as in `retrieve`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss

from tandem.cluster.progress import Progress, say
from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings, Pieces, block_name
from tandem.retrieval.indexes.build import INDEX, empty, fill, is_merged, merge, sample, train
from tandem.retrieval.indexes.threads import Threads, alone, faiss_error, lease_gpus
from tandem.retrieval.indexes.types import LEAST, check, factory, sample_size, sized, uses
from tandem.stages.retrieval import IndexParams
from tandem.store.artifact import check_files
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, plain, writing

TRAINED, PARTS = "trained.faiss", "work"


def part_name(number: int) -> str:
    """The file of a part."""
    return f"part-{number:05d}.faiss"


class Build:
    """An index that is being built; a `UserError` where parameters do not fit the vectors, or FAISS lacks it."""

    def __init__(self, job: Job[IndexParams]) -> None:
        check_files(job.inputs["passages"], ["meta.json"])
        self.job, self.passages = job, Embeddings(job.inputs["passages"], "passages")
        rows, dimension = self.passages.rows, self.passages.dimension
        self.params = sized(job.params, rows, dimension)
        check(self.params, f"indexes.{job.key.rpartition('-')[0].rpartition('@')[2]}", rows, dimension)
        self.index = empty(self.params, dimension)
        self.factory = factory(self.params, dimension)
        size = self.params.part
        self.parts = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
        origin = json.dumps([plain(job.params), job.inputs["passages"].manifest.checksums], sort_keys=True)
        self.pieces = Pieces(job.out / PARTS, hashlib.sha256(origin.encode()).hexdigest())
        self.gpu = lease_gpus(job)
        self.unchecked = set(range(len(self.passages)))

    def check(self, blocks: range, threads: Threads) -> None:
        """Compare blocks with their manifest before they are read, each once; a `UserError` names one that differs."""
        names = [block_name(number) for number in blocks if number in self.unchecked]
        for _ in threads.map(lambda name: check_files(self.passages.artifact, [name]), names):
            pass
        self.unchecked -= set(blocks)

    @contextmanager
    def faiss(self) -> Iterator[None]:
        """Turn FAISS's errors into a `UserError`."""
        try:
            yield
        except RuntimeError as error:
            raise UserError(f"index: FAISS cannot build {self.factory}: {faiss_error(error)}") from None

    def train(self, threads: Threads) -> None:
        """Train the index, unless that is done."""
        if self.pieces.facts(TRAINED):
            return
        if not self.index.is_trained:
            size = sample_size(self.params, self.passages.rows)
            say(f"index {self.job.key} · trains {self.factory} on {size:,} passages")
            if uses(self.params, "bits") and size < LEAST << self.params.bits:
                say(f"index {self.job.key} · {LEAST << self.params.bits:,} passages would be better for its codes")
            self.check(range(len(self.passages)), threads)
            vectors = sample(self.passages, size, self.params.seed)
            with self.faiss():
                train(self.index, vectors, self.params.seed, threads, self.gpu)
        self.save(TRAINED, self.index)

    def fill(self, numbers: Iterable[int], threads: Threads) -> None:
        """Fill those of the parts that are missing."""
        missing = [number for number in numbers if not self.pieces.facts(part_name(number))]
        total = sum(len(self.parts[number]) for number in missing)
        with Progress(f"index {self.job.key}", total, "passages", quiet=not missing) as progress:
            for number in missing:
                rows, size = self.parts[number], self.passages.size
                self.check(range(rows.start // size, -(-rows.stop // size)), threads)
                index = faiss.read_index(str(self.pieces.folder / TRAINED))
                with self.faiss():
                    fill(index, self.passages, rows, threads, self.gpu, progress)
                self.save(part_name(number), index)

    def save(self, name: str, index: Any) -> None:
        """Write a finished index, from which a killed build continues."""
        self.pieces.write(name, lambda path: faiss.write_index(index, str(path)))

    def finish(self, draft: Draft) -> None:
        """Put the parts together: one index where lists can be merged, else one a part."""
        paths = [self.pieces.folder / part_name(number) for number in range(len(self.parts))]
        names = [INDEX]
        if is_merged(self.index):
            merge(self.pieces.folder / TRAINED, paths, draft.folder)
        else:
            names = [INDEX] if len(paths) == 1 else [path.name for path in paths]
            for name, path in zip(names, paths, strict=True):
                _link(path, draft.path(name))
        write_json(draft.path("meta.json"), self.describe(names))

    def describe(self, names: list[str]) -> dict[str, object]:
        """`meta.json`: what a searcher must know."""
        firsts = [0] if is_merged(self.index) else [part.start for part in self.parts]
        return {
            "rows": self.passages.rows,
            "dimension": self.passages.dimension,
            "factory": self.factory,
            "metric": "inner product",
            "params": plain(self.params),
            "indexes": [{"file": name, "first": first} for name, first in zip(names, firsts, strict=True)],
        }


def _link(path: Path, to: Path) -> None:
    """Give a finished part a second name in the draft, so that a kill at any time does not lose it."""
    try:
        os.link(path, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, to)


def train_shard(job: Job[IndexParams]) -> dict[str, object]:
    """Train the index before its shards fill it."""
    build = Build(job)
    with alone(job.execution.workers) as threads:
        build.train(threads)
    return {"trained": build.pieces.origin}


def run_shard(job: Job[IndexParams]) -> dict[str, object]:
    """Fill every n-th part, beginning with this shard's number."""
    build = Build(job)
    numbers = range(job.execution.shard or 0, len(build.parts), job.execution.shards)
    with alone(job.execution.workers) as threads:
        build.train(threads)
        build.fill(numbers, threads)
    return {"parts": list(numbers)}


def run(job: Job[IndexParams]) -> None:
    """Train, fill what no shard has filled, put the parts together and write the manifest."""
    build = Build(job)
    with alone(job.execution.workers) as threads:
        build.train(threads)
        build.fill(range(len(build.parts)), threads)
        with writing(job) as draft:
            build.finish(draft)
            size = sum(path.stat().st_size for path in draft.folder.iterdir())
            draft.facts |= {
                "passages": build.passages.rows,
                "factory": build.factory,
                "bytes_per_vector": round(size / build.passages.rows, 2),
            }
    shutil.rmtree(build.pieces.folder)
