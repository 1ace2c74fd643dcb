"""Finished pieces of a result that is being computed, so that a killed stage continues and shards share its work."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.store.files import sha256, write_json


@dataclass(frozen=True)
class Pieces:
    """Finished pieces of a result, so that a killed stage continues and shards share its work.

    Files appear whole, each with a JSON file of suffix `mark` beside it that marks it as finished. A piece of another
    `origin`, the digest of everything that decides it, does not count.
    """

    folder: Path
    origin: str
    mark: str = ".json"

    def write(self, name: str, write: Callable[[Path], object], **facts: object) -> dict[str, Any]:
        """Have `write` write a piece to a path; what its mark then says, `facts` included."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        write(partial)
        os.replace(partial, path)
        facts |= {"sha256": sha256(path), "origin": self.origin}
        write_json(path.with_suffix(self.mark), facts)
        return facts

    def facts(self, name: str) -> dict[str, Any] | None:
        """What the mark of a piece says; None if the piece is missing, damaged or of another origin."""
        try:
            facts: dict[str, Any] = json.loads((self.folder / name).with_suffix(self.mark).read_text())
            whole = facts["origin"] == self.origin and facts["sha256"] == sha256(self.folder / name)
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return facts if whole else None
