"""A bundle that was unpacked: what lies in it, and whether it is whole."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.errors import UserError
from tandem.provenance.faults import Fault
from tandem.provenance.found import files_in
from tandem.provenance.hashing import Task, compared

LIST = "bundle.json"
AGAIN = "again"  # the folder in it where its table is made again


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    Attributes:
        folder: where it was unpacked.
        told: what `bundle.json` says: `files` with sizes and checksums, `left_out` keys of artifacts of which only the
            manifest was packed.
    """

    folder: Path
    told: dict[str, Any]

    @classmethod
    def at(cls, folder: Path) -> "Bundle | None":
        """The bundle in a folder; None if there is none."""
        path = folder / LIST
        if not path.is_file():
            return None
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(folder, {"files": dict(told["files"]), "left_out": list(told["left_out"])})
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path}: is not what `tandem bundle` writes; unpack the archive anew") from None

    @property
    def results(self) -> Path:
        """Its artifacts."""
        return self.folder / "results"

    @property
    def left_out(self) -> frozenset[str]:
        """Keys of the artifacts whose files were not packed."""
        return frozenset(self.told["left_out"])

    def faults(self, threads: int) -> list[Fault]:
        """Files that are missing, changed or not listed."""
        files = self.told["files"]
        items = (item for name, told in files.items() for item in (Task(self.folder, name, told), None))
        with Progress(f"verify {LIST}", len(files), "files") as progress:
            made = list(compared(items, threads, False, progress))
        known = {*files, LIST}
        for path in files_in(self.folder):
            place = path.relative_to(self.folder)
            if place.as_posix() not in known and place.parts[0] != AGAIN:
                made.append(Fault(self.folder, "unknown", path, f"is not in {LIST}"))
        return made
