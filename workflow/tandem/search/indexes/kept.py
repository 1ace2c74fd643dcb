"""What a killed build leaves to go on from: the trained index and the finished parts."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss

from tandem.store.files import sha256, write_json


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
