"""The parts of a job's result, which shards share and from which a killed stage goes on."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.stages.base import Json
from tandem.store.job import Job
from tandem.store.pieces import WORK, Pieces, origin


class Parts:
    """Files or folders numbered from 0: shard i of n writes the parts i, i + n, i + 2n, …

    The stage itself writes what is missing and puts them together, so that the number of shards shows in no byte.
    """

    def __init__(self, job: Job[Any], suffix: str = "") -> None:
        checksums = {role: artifact.manifest.checksums for role, artifact in job.inputs.items()}
        self.job, self.pieces, self.suffix = job, Pieces(job.out / WORK, origin(job, checksums)), suffix

    def path(self, number: int) -> Path:
        """The file or folder of a part."""
        return self.pieces.folder / f"{number:05d}{self.suffix}"

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

    def complete(
        self, spans: Sequence[range], unit: str, write: Callable[[range, Progress, Path], Json]
    ) -> dict[int, Json]:
        """The facts of this job's parts by number, after `write` has written the missing ones.

        Args:
            spans: the rows of every part.
            unit: what the rows are.
            write: takes a part's rows, the progress, to which it adds rows, and a path; returns facts.
        """
        own = [number for number in range(len(spans)) if self.is_own(number)]
        facts = {number: self.facts(number) for number in own}
        total, done = sum(len(spans[n]) for n in own), sum(len(spans[n]) for n in own if facts[n])
        with Progress(f"{self.job.kind} {self.job.key}", total, unit, done=done) as progress:
            return {n: facts[n] or self.write(n, partial(write, spans[n], progress)) for n in own}

    def remove(self) -> None:
        """Remove all parts, once they have been put together."""
        shutil.rmtree(self.pieces.folder, ignore_errors=True)
