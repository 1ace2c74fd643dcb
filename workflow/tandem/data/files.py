"""A dataset's files: in the folder that `path` names, or downloaded as its entry's `files` say; plain or as `.gz`."""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tandem.config.datasets import File
from tandem.config.execution import Mirror
from tandem.config.validation import read
from tandem.data.archives import is_below, unpack
from tandem.data.fetch import Expected, cache_path, data_folder, fetch, local_path
from tandem.data.splits import SPLIT, order
from tandem.errors import UserError
from tandem.store.job import Job

HERE = "./"


class Files:
    """The files of one dataset.

    With `path` (in `job.execution`) they are looked for in that folder only. Without it they are those of `files`,
    taken from the folder `TANDEM_DATA`, the `mirrors` or their URLs when they are needed; `name` is the dataset's.
    """

    def __init__(self, job: Job) -> None:
        execution = job.execution
        self._downloads: Downloads | None = None
        if execution.path:
            self.folder = Path(execution.path)
            if not self.folder.is_dir():
                raise UserError(f"{self.folder}: no such folder; path names the folder that holds the dataset's files")
        elif isinstance(execution.files, dict) and execution.files:
            name = execution.name or job.out.parent.parent.name
            entries = {key: read(File, file, f"datasets.{name}.files.{key}") for key, file in execution.files.items()}
            self._downloads = Downloads(name, entries, execution.mirrors)
            self.folder = self._downloads.folder
        else:
            raise UserError("path: missing; name the folder that holds the dataset's files")
        self.place = f"files of dataset {self._downloads.dataset}" if self._downloads else str(self.folder)

    def find_optional(self, *names: str) -> Path | None:
        """The first of several names (`/` allowed) that exists, plain or with `.gz`; None if there is none."""
        for name in names:
            for file in (name, f"{name}.gz"):
                path = self._downloads.find(file) if self._downloads else self.folder / file
                if path is not None and path.is_file():
                    return path
        return None

    def find(self, *names: str) -> Path:
        """`find_optional`, with a `UserError` that lists the names if no file exists."""
        path = self.find_optional(*names)
        if path is None:
            raise UserError(f"{self.place}: holds no {' or '.join(names)} (plain or .gz); put it there")
        return path

    def glob(self, pattern: str, required: bool = True) -> list[Path]:
        """All files that match a pattern (`*` does not cross `/`), sorted by name; a `UserError` without any."""
        if self._downloads:
            paths = self._downloads.glob(pattern)
        else:
            paths = sorted(path for path in self.folder.glob(pattern) if path.is_file())
        if required and not paths:
            raise UserError(f"{self.place}: holds no {pattern}; put the files there")
        return paths


def files_by_split(key: str, names: Mapping[str, str] | None, files: Files) -> dict[str, Path]:
    """Split → file of an entry's `{train: train.tsv, …}`, in the order train, dev, test, others; empty for None."""
    names = names or {}
    if not all(map(SPLIT.fullmatch, names)):
        raise UserError(f"{key}: {names!r}; a file by split is needed, as in {key}: {{test: FILE}}")
    return {split: files.find(names[split]) for split in sorted(names, key=order)}


class Downloads:
    """The downloaded files of one dataset.

    A file is looked for in the data folder as `<dataset>/<file>`, `<dataset>/<the URL's last part>` and
    `<host>/<path>`, and fetched to the last of these if it is in none. A file that was put there by hand is checked
    like a download.

    A name with `/` at its end stands for a folder of the URL's archive, `./` for one whose files have their own names.
    """

    def __init__(self, dataset: str, files: Mapping[str, File], mirrors: Sequence[Mirror] = ()) -> None:
        where = f"datasets.{dataset}.files"
        for name, file in files.items():
            if name != HERE and not is_below(name):
                raise UserError(f"{where}: {name!r} is no file name; `..` and a leading `/` are not allowed")
            if name.endswith("/") and not (file.member or "").endswith("/"):
                raise UserError(f"{where}: {name} is a folder; its member must end in `/` too")
        self.dataset, self.files, self.mirrors = dataset, files, mirrors
        self.folder = data_folder() / dataset
        self._paths: dict[str, Path] = {}

    def find(self, name: str) -> Path | None:
        """A file's path, after downloading it if necessary; None if the entry does not name it."""
        if name in self.files:
            return self._path(name)
        for key in self.files:
            if key.endswith("/") and name.startswith(_prefix(key)):
                path = self._path(key) / name.removeprefix(_prefix(key))
                if path.is_file():
                    return path
        return None

    def glob(self, pattern: str) -> list[Path]:
        """The files whose names match a pattern, sorted by name; `*` does not cross `/`."""
        paths: dict[str, Path | None] = {}
        for key in self.files:
            if not key.endswith("/"):
                paths[key] = None
            elif _matches(_prefix(key).split("/")[:-1], pattern.split("/"), whole=False):
                folder = self._path(key)
                paths |= {f"{_prefix(key)}{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*")}
        matches = {name: path for name, path in paths.items() if _matches(name.split("/"), pattern.split("/"))}
        matching = (matches[name] or self._path(name) for name in sorted(matches))
        return [path for path in matching if path.is_file()]

    def is_present(self, name: str) -> bool:
        """Whether a file is on this machine, whole or unpacked; nothing is fetched and no checksum computed."""
        url, own = self.files[name].url, None if name == HERE else self.folder / name
        places = [own, *self._places(url), self._unpacked(name), local_path(url)]
        return any(place is not None and place.exists() for place in places)

    def _path(self, name: str) -> Path:
        if name not in self._paths:
            self._paths[name] = self._link(name, self._fetched(name))
        return self._paths[name]

    def _link(self, name: str, path: Path) -> Path:
        """A path that ends in the file's name: formats recognise splits by names."""
        if name == HERE or path.name == Path(name).name:
            return path
        link = self.folder / ".named" / name.removesuffix("/")
        if not link.is_symlink() or link.readlink() != path:
            link.parent.mkdir(parents=True, exist_ok=True)
            temporary = link.with_name(f".{link.name}.{os.getpid()}")
            temporary.symlink_to(path)
            os.replace(temporary, link)
        return link

    def _fetched(self, name: str) -> Path:
        """Where a file is, after fetching and unpacking what is missing."""
        file, own, unpacked = self.files[name], self.folder / name, self._unpacked(name)
        expected = Expected(file.bytes, file.sha256, file.md5)
        if name != HERE and own.exists():
            return own if unpacked else _checked(own, expected)
        source = next((place for place in self._places(file.url) if place.is_file()), None)
        if unpacked and source is None and unpacked.exists():
            return unpacked  # the archive was deleted to save space
        if source:
            _checked(source, expected)
        else:
            source = fetch(file.url, self._places(file.url)[-1], expected, self.mirrors)
        if unpacked is None or file.member is None:
            return source
        members = {other.member for other in self.files.values() if other.url == file.url and other.member}
        return unpack(source, members, self._unpacked_folder(file))[file.member]

    def _places(self, url: str) -> list[Path]:
        """Where the bytes of a URL may be; downloads go to the last."""
        own = self.folder / _last_part(url)
        if local_path(url):
            return [own]
        unique = {file.url for file in self.files.values() if _last_part(file.url) == own.name} == {url}
        return [*([own] if unique else []), cache_path(url)]

    def _unpacked(self, name: str) -> Path | None:
        """Where a member of an archive is unpacked; None for a file that is no member."""
        file = self.files[name]
        return self._unpacked_folder(file) / file.member if file.member is not None else None

    def _unpacked_folder(self, file: File) -> Path:
        """The folder of an archive's members, another for another content."""
        archive = self._places(file.url)[-1]
        return archive.with_name(f"{archive.name}.{(file.sha256 or file.md5 or 'files')[:10]}")


def _prefix(key: str) -> str:
    return "" if key == HERE else key


def _last_part(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _checked(path: Path, expected: Expected) -> Path:
    """A file that was put there by hand; a `UserError` if it is another one."""
    if error := expected.mismatch(path):
        raise UserError(f"{path}: {error}; delete it to have it fetched, or put the right file there")
    return path


def _matches(name: list[str], pattern: list[str], whole: bool = True) -> bool:
    """Whether the parts of a path match those of a pattern; without `whole`, as far as the path goes."""
    if len(name) > len(pattern) or (whole and len(name) != len(pattern)):
        return False
    return all(map(fnmatchcase, name, pattern))
