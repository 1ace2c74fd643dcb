"""Finished pieces of a result, so that a killed stage continues and shards share its work."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.stages.base import Json
from tandem.store.files import files_in, replacing, sha256, write_json
from tandem.store.job import Job, plain

WORK = "work"  # the folder, beside the artifact's files, of pieces that are put together and then removed


def origin(job: Job[Any], files: object) -> str:
    """The digest of all that decides a job's result: its parameters, and `files`, the checksums of what it reads."""
    return hashlib.sha256(json.dumps([plain(job.params), files], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Pieces:
    """Files or folders that appear whole, each with a JSON file beside it that marks it as finished.

    A piece of another `origin` does not count.
    """

    folder: Path
    origin: str

    def write(self, name: str, write: Callable[[Path], Json | None], **facts: object) -> Json:
        """Have `write` write a piece to a path; what its mark then says: `facts`, and those that `write` returns."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            facts |= write(partial) or {}
            if partial.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        facts |= {"sha256": _digest(path), "origin": self.origin}
        write_json(path.with_suffix(".json"), facts)
        return facts

    def facts(self, name: str) -> Json | None:
        """What the mark of a piece says; None if the piece is missing, damaged or of another origin."""
        path = self.folder / name
        try:
            facts: Json = json.loads(path.with_suffix(".json").read_text())
            whole = facts["origin"] == self.origin and facts["sha256"] == _digest(path)
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return facts if whole else None


def _digest(path: Path) -> str:
    """sha256 of a file, or of a folder's names and files."""
    if not path.is_dir():
        return sha256(path)
    lines = [f"{sha256(file)}  {file.relative_to(path)}\n" for file in files_in(path)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def spans(rows: int, size: int) -> list[range]:
    """The rows of each part where all but the last have `size` rows."""
    return [range(first, min(first + size, rows)) for first in range(0, rows, size)]
