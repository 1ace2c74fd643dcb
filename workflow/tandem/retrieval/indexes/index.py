"""What a killed build leaves to go on from: the trained index and the finished parts."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss

from tandem.artifact import Draft, Job, check_files, sha256, write_json, writing
from tandem.errors import UserError
from tandem.progress import Progress, say
from tandem.retrieval.embeddings import Embeddings, block_name
from tandem.retrieval.indexes.build import INDEX, empty, fill, is_merged, merge, train
from tandem.retrieval.indexes.kmeans import sample
from tandem.retrieval.indexes.threads import Threads, alone, lease_gpus
from tandem.retrieval.indexes.types import LEAST, check, factory, sample_size, sized
from tandem.retrieval.pair_scores import read_shard


@dataclass(frozen=True)
class Kept:
    """Indexes beside the artifact that is being built, each with a file that says that it is whole.

    Attributes:
        folder: where they lie.
        origin: digest of what decides the index; what is of another origin does not count.
    """

    folder: Path
    origin: str

    def path(self, name: str) -> Path:
        """Where an index is kept."""
        return self.folder / f"{name}.faiss"

    def there(self, name: str) -> bool:
        """Whether it is finished, undamaged and of this origin."""
        try:
            told = json.loads(self.path(name).with_suffix(".json").read_text())
            return bool(told == {"origin": self.origin, "sha256": sha256(self.path(name))})
        except (FileNotFoundError, ValueError):
            return False

    def keep(self, name: str, index: Any) -> None:
        """Write an index, then what says that it is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(name)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        faiss.write_index(index, str(partial))
        os.replace(partial, path)
        write_json(path.with_suffix(".json"), {"origin": self.origin, "sha256": sha256(path)})


TRAINED, PARTS = "trained", "work"


def part_name(number: int) -> str:
    """A part's name, without its ending."""
    return f"part-{number:05d}"


class Building:
    """An index that is being built.

    Raises:
        UserError: its parameters do not fit the vectors, or FAISS knows no such index.
    """

    def __init__(self, job: Job) -> None:
        check_files(job.inputs["passages"], ["meta.json"])
        self.job, self.passages = job, Embeddings(job.inputs["passages"], "passages")
        rows, dimension = self.passages.rows, self.passages.dimension
        self.params = sized(job.params, rows, dimension)
        check(self.params, f"indexes.{job.key.rpartition('-')[0].rpartition('@')[2]}", rows, dimension)
        self.index = empty(self.params, dimension)
        size = self.params["part"]
        self.parts = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
        told = json.dumps([job.params, job.inputs["passages"].manifest["files"]], sort_keys=True)
        self.kept = Kept(job.out / PARTS, hashlib.sha256(told.encode()).hexdigest())
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
        """What FAISS refuses is a `UserError` with its words."""
        try:
            yield
        except RuntimeError as error:
            name, told = factory(self.params, self.passages.dimension), str(error).strip().splitlines()[-1]
            raise UserError(f"index: FAISS cannot build {name}: {told}") from None

    def train(self, threads: Threads) -> None:
        """Train the index, unless that is done."""
        if self.kept.there(TRAINED):
            return
        if not self.index.is_trained:
            size = sample_size(self.params, self.passages.rows)
            say(f"index {self.job.key} · trains {factory(self.params, self.passages.dimension)} on {size:,} passages")
            if (bits := self.params.get("bits")) and size < LEAST << bits:
                say(f"index {self.job.key} · {LEAST << bits:,} passages would be better for its codes")
            self.check(range(len(self.passages)), threads)
            learned = sample(self.passages, size, self.params["seed"])
            with self.faiss():
                train(self.index, learned, self.params["seed"], threads, self.gpu)
        self.kept.keep(TRAINED, self.index)

    def fill(self, numbers: Iterable[int], threads: Threads) -> None:
        """Fill those of the parts that are missing."""
        missing = [number for number in numbers if not self.kept.there(part_name(number))]
        total = sum(len(self.parts[number]) for number in missing)
        with Progress(f"index {self.job.key}", total, "passages", quiet=not missing) as progress:
            for number in missing:
                rows, size = self.parts[number], self.passages.size
                self.check(range(rows.start // size, -(-rows.stop // size)), threads)
                index = faiss.read_index(str(self.kept.path(TRAINED)))
                with self.faiss():
                    fill(index, self.passages, rows, threads, self.gpu, progress)
                self.kept.keep(part_name(number), index)

    def finish(self, draft: Draft) -> None:
        """Put the parts together: one index where lists can be merged, else one a part."""
        paths = [self.kept.path(part_name(number)) for number in range(len(self.parts))]
        names = [INDEX]
        if is_merged(self.index):
            merge(self.kept.path(TRAINED), paths, draft.folder)
        else:
            names = [INDEX] if len(paths) == 1 else [f"{part_name(number)}.faiss" for number in range(len(paths))]
            for name, path in zip(names, paths, strict=True):
                _share(path, draft.path(name))
        write_json(draft.path("meta.json"), self.describe(names))

    def describe(self, names: list[str]) -> dict[str, Any]:
        """What a searcher must know."""
        merged = is_merged(self.index)
        return {
            "rows": self.passages.rows,
            "dimension": self.passages.dimension,
            "factory": factory(self.params, self.passages.dimension),
            "metric": "inner product",
            "params": self.params,
            "indexes": [
                {"file": name, "first": 0 if merged else part.start}
                for name, part in zip(names, self.parts, strict=False)
            ],
        }


def _share(path: Path, to: Path) -> None:
    """Give a finished part a second name in the draft, so that it is safe in its place whenever we are killed."""
    try:
        os.link(path, to)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, to)


def train_shard(words: list[str]) -> int:
    """Command `index-train`: train the index before its shards fill it."""
    job, _, _ = read_shard("index", words)
    building = Building(job)
    with alone(job.execution.workers) as threads:
        building.train(threads)
    write_json(Path(words[words.index("--out") + 1]), {"trained": building.kept.origin})
    return 0


def run_shard(words: list[str]) -> int:
    """Command `index-shard`: fill every n-th part, beginning with this shard's number."""
    job, shard, shards = read_shard("index", words)
    building = Building(job)
    numbers = range(shard, len(building.parts), shards)
    with alone(job.execution.workers) as threads:
        building.train(threads)
        building.fill(numbers, threads)
    write_json(Path(words[words.index("--out") + 1]), {"parts": list(numbers)})
    return 0


def run(job: Job) -> None:
    """Train, fill what no shard has filled, put the parts together and write the manifest."""
    building = Building(job)
    with alone(job.execution.workers) as threads:
        building.train(threads)
        building.fill(range(len(building.parts)), threads)
        with writing(job) as draft:
            building.finish(draft)
            size = sum(path.stat().st_size for path in draft.folder.iterdir())
            draft.facts |= {
                "passages": building.passages.rows,
                "factory": factory(building.params, building.passages.dimension),
                "bytes_per_vector": round(size / building.passages.rows, 2),
            }
    shutil.rmtree(building.kept.folder)
