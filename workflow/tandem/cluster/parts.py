"""The parts of a job's result, which shards share and from which a killed stage goes on."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.stages import KINDS
from tandem.stages.base import Json
from tandem.store.job import Job
from tandem.store.pieces import WORK, Pieces, origin, spans


class Parts:
    """Files or folders numbered from 0: shard i of n writes the parts i, i + n, i + 2n, …

    The stage itself writes what is missing and puts them together, so that the number of shards shows in no byte.
    """

    def __init__(self, job: Job[Any], suffix: str = "") -> None:
        part = KINDS[job.kind].part
        assert part is not None
        self.rows, self.unit = part.rows, part.unit
        files = {role: artifact.manifest.checksums for role, artifact in job.inputs.items()}
        self.pieces = Pieces(job.out / WORK, origin(job, [files, part.rows]))
        self.job, self.suffix = job, suffix

    def path(self, number: int) -> Path:
        """The file or folder of a part."""
        return self.pieces.folder / f"{number:05d}{self.suffix}"

    def spans(self, rows: int) -> list[range]:
        """The rows of each part."""
        return spans(rows, self.rows)

    def is_own(self, number: int) -> bool:
        """Whether this job writes a part, if it is missing: the stage any, a shard every n-th."""
        shard, shards = self.job.execution.shard, self.job.execution.shards
        return shard is None or number % shards == shard

    def facts(self, number: int) -> Json | None:
        """What `write` has returned of a part; None if the part is missing, damaged or made from other inputs."""
        return self.pieces.facts(self.path(number).name)

    def write(self, number: int, write: Callable[[Path], Json]) -> Json:
        """Have `write` write a part to a path; its facts."""
        return self.pieces.write(self.path(number).name, write)

    def complete(self, rows: int, write: Callable[[range, Progress, Path], Json]) -> dict[int, Json]:
        """The facts of this job's parts by number, after `write` has written the missing ones.

        Args:
            rows: of all parts.
            write: takes a part's rows, the progress, to which it adds rows, and a path; returns facts.
        """
        parts = self.spans(rows)
        own = [number for number in range(len(parts)) if self.is_own(number)]
        facts = {number: self.facts(number) for number in own}
        total, done = sum(len(parts[n]) for n in own), sum(len(parts[n]) for n in own if facts[n])
        with Progress(f"{self.job.kind} {self.job.key}", total, self.unit, done=done) as progress:
            return {n: facts[n] or self.write(n, partial(write, parts[n], progress)) for n in own}

    def remove(self) -> None:
        """Remove all parts, once they have been put together."""
        shutil.rmtree(self.pieces.folder, ignore_errors=True)
