"""Where a dataset's files are: in the folder that `path` names, or where its entry's `files` say; plain or as `.gz`."""

from pathlib import Path
from typing import Any

from tandem.data.downloads import Downloads
from tandem.errors import UserError
from tandem.store.job import Job


class Files:
    """The files of one dataset.

    With `path` (in `job.execution`) they are looked for in that folder only. Without it they are those of `files`,
    taken from the folder `TANDEM_DATA`, the `mirrors` or their URLs when they are asked for; `name` is the dataset's.

    Attributes:
        folder: where they are looked for first, for messages.
    """

    def __init__(self, job: Job) -> None:
        path: Any = job.execution.path
        files: Any = job.execution.files
        self._downloads: Downloads | None = None
        if path:
            self.folder = Path(path)
            if not self.folder.is_dir():
                raise UserError(f"{path}: no such folder; path names the folder that holds the dataset's files")
        elif files:
            name = job.execution.name or job.out.parent.parent.name
            self._downloads = Downloads(name, files, [{"from": m.from_, "to": m.to} for m in job.execution.mirrors])
            self.folder = self._downloads.folder
        else:
            raise UserError("path: missing; name the folder that holds the dataset's files")

    def maybe(self, *names: str) -> Path | None:
        """The first of several names (`/` allowed) that exists, plain or with `.gz`; None if there is none."""
        for name in names:
            for one in (name, f"{name}.gz"):
                path = self._downloads.at(one) if self._downloads else self.folder / one
                if path is not None and path.is_file():
                    return path
        return None

    def find(self, *names: str) -> Path:
        """`maybe`, with a `UserError` that lists the names if there is none."""
        found = self.maybe(*names)
        if found is None:
            raise UserError(f"{self._place}: holds no {' or '.join(names)} (plain or .gz); put it there")
        return found

    def glob(self, pattern: str, needed: bool = True) -> list[Path]:
        """All files that fit a pattern (`*` does not cross `/`), sorted by name; a `UserError` if one is needed."""
        if self._downloads:
            found = self._downloads.glob(pattern)
        else:
            found = sorted(path for path in self.folder.glob(pattern) if path.is_file())
        if needed and not found:
            raise UserError(f"{self._place}: holds no {pattern}; put the files there")
        return found

    @property
    def _place(self) -> str:
        """What to call the place in an error."""
        return f"files of dataset {self._downloads.dataset}" if self._downloads else str(self.folder)
