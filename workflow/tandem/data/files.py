"""Where a dataset's files are: in the folder that `path` names, plain or as `.gz`."""

from pathlib import Path
from typing import Any

from tandem.artifact import Job
from tandem.errors import UserError


class Files:
    """The files of one dataset."""

    def __init__(self, job: Job) -> None:
        told: Any = job.execution.get("path")
        if not told:
            raise UserError("path: missing; name the folder that holds the dataset's files")
        self.folder = Path(told)
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such folder; path names the folder that holds the dataset's files")

    def maybe(self, *names: str) -> Path | None:
        """The first of several names (`/` allowed) that exists, plain or with `.gz`; None if there is none."""
        for name in names:
            for path in (self.folder / name, self.folder / f"{name}.gz"):
                if path.is_file():
                    return path
        return None

    def find(self, *names: str) -> Path:
        """`maybe`, with a `UserError` that lists the names if there is none."""
        found = self.maybe(*names)
        if found is None:
            raise UserError(f"{self.folder}: holds no {' or '.join(names)} (plain or .gz); put it there")
        return found

    def glob(self, pattern: str) -> list[Path]:
        """All files that fit a pattern, sorted by name; a `UserError` if there is none."""
        found = sorted(path for path in self.folder.glob(pattern) if path.is_file())
        if not found:
            raise UserError(f"{self.folder}: holds no {pattern}; put the files there")
        return found
