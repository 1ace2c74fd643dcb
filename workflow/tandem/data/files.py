"""Where a dataset's files are: in the folder that `path` names, or where its entry's `files` say; plain or as `.gz`."""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tandem.artifact import Job
from tandem.data.archives import plain, unpack
from tandem.data.fetch import Expected, Mirrors, data_folder, fetch, kept_at, local
from tandem.data.splits import SPLIT, order
from tandem.errors import UserError


# ---- tandem.data.files
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


# ---- tandem.data.files
HERE = "./"


class Downloads:
    """The files of one dataset.

    A file is looked for in the data folder as `<dataset>/<file>`, `<dataset>/<the URL's last part>` and
    `<host>/<path>`, and fetched to the last of these if it is in none. What stands in for a download is checked like
    one.

    Args:
        dataset: its name.
        files: name → `url`, and if known `sha256`, `md5`, `bytes`; `member` is the file in the archive of the URL. A
            name with `/` at its end stands for a folder of the archive, `./` for one whose files keep their own names.
        mirrors: asked before the URLs.
    """

    def __init__(self, dataset: str, files: Mapping[str, Mapping[str, Any]], mirrors: Mirrors = ()) -> None:
        for name, entry in files.items():
            if name != HERE and not plain(name):
                raise UserError(
                    f"datasets.{dataset}.files: {name!r} is no file name; `..` and a leading `/` are not allowed"
                )
            if name.endswith("/") and not entry.get("member", "").endswith("/"):
                raise UserError(f"datasets.{dataset}.files: {name} is a folder; its member must end in `/` too")
        self.dataset, self.files, self.mirrors = dataset, files, mirrors
        self.folder = data_folder() / dataset
        self._paths: dict[str, Path] = {}

    def at(self, name: str) -> Path | None:
        """A file's path, fetched if need be; None if the entry does not name it."""
        if name in self.files:
            return self._path(name)
        for key in self.files:
            if key.endswith("/") and name.startswith(_prefix(key)):
                path = self._path(key) / name.removeprefix(_prefix(key))
                if path.is_file():
                    return path
        return None

    def glob(self, pattern: str) -> list[Path]:
        """The files whose names fit a pattern, sorted by name; `*` does not cross `/`."""
        found: dict[str, Path | None] = {}
        for key in self.files:
            if not key.endswith("/"):
                found |= {key: None}
            elif _fits(_prefix(key).split("/")[:-1], pattern.split("/"), whole=False):
                folder = self._path(key)
                found |= {f"{_prefix(key)}{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*")}
        fit = {name: path for name, path in found.items() if _fits(name.split("/"), pattern.split("/"))}
        paths = [fit[name] or self._path(name) for name in sorted(fit)]
        return [path for path in paths if path.is_file()]

    def here(self, name: str) -> bool:
        """Whether a file is on this machine, whole or unpacked; nothing is fetched and no checksum computed."""
        url, unpacked = self.files[name]["url"], self._unpacked(name)
        places = [*([] if name == HERE else [self.folder / name]), *self._places(url), unpacked, local(url)]
        return any(place is not None and place.exists() for place in places)

    def _path(self, name: str) -> Path:
        if name not in self._paths:
            self._paths[name] = self._named(name, self._find(name))
        return self._paths[name]

    def _named(self, name: str, path: Path) -> Path:
        """A path that ends as the file is called: formats tell splits by names."""
        if name == HERE or path.name == Path(name).name:
            return path
        link = self.folder / ".named" / name.removesuffix("/")
        if not link.is_symlink() or link.readlink() != path:
            link.parent.mkdir(parents=True, exist_ok=True)
            temporary = link.with_name(f".{link.name}.{os.getpid()}")
            temporary.symlink_to(path)
            os.replace(temporary, link)
        return link

    def _find(self, name: str) -> Path:
        """Where a file is, after fetching and unpacking what is not here."""
        entry, own, unpacked = self.files[name], self.folder / name, self._unpacked(name)
        if name != HERE and own.exists():
            return own if unpacked else _checked(own, _expected(entry))
        kept = next((place for place in self._places(entry["url"]) if place.is_file()), None)
        if unpacked and kept is None and unpacked.exists():
            return unpacked  # the archive was deleted to save space
        if kept:
            _checked(kept, _expected(entry))
        else:
            kept = fetch(entry["url"], self._places(entry["url"])[-1], _expected(entry), self.mirrors)
        if unpacked is None:
            return kept
        members = {one["member"] for one in self.files.values() if one["url"] == entry["url"] and "member" in one}
        return unpack(kept, members, self._unpacked_folder(entry))[entry["member"]]

    def _places(self, url: str) -> list[Path]:
        """Where the bytes of a URL may be kept; the last is where they are put."""
        own = self.folder / _last(url)
        if local(url):
            return [own]
        alone = {one["url"] for one in self.files.values() if _last(one["url"]) == own.name} == {url}
        return [*([own] if alone else []), kept_at(url)]

    def _unpacked(self, name: str) -> Path | None:
        """Where a file that is a member of an archive is unpacked; None if it is none."""
        entry = self.files[name]
        return self._unpacked_folder(entry) / entry["member"] if "member" in entry else None

    def _unpacked_folder(self, entry: Mapping[str, Any]) -> Path:
        """The folder of an archive's members, another for another content."""
        archive = self._places(entry["url"])[-1]
        return archive.with_name(f"{archive.name}.{(entry.get('sha256') or entry.get('md5') or 'files')[:10]}")


def _prefix(key: str) -> str:
    """What the names of a folder's files begin with."""
    return "" if key == HERE else key


def _last(url: str) -> str:
    """The last part of a URL's path."""
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _expected(entry: Mapping[str, Any]) -> Expected:
    return Expected(entry.get("bytes"), entry.get("sha256"), entry.get("md5"))


def _checked(path: Path, expected: Expected) -> Path:
    """A file that stands in for a download; a `UserError` if it is another one."""
    fault = expected.fault(path)
    if fault:
        raise UserError(f"{path}: {fault}; delete it to have it fetched, or put the right file there")
    return path


def _fits(name: list[str], pattern: list[str], whole: bool = True) -> bool:
    """Whether the parts of a path fit those of a pattern; without `whole`, as far as the path goes."""
    if len(name) > len(pattern) or (whole and len(name) != len(pattern)):
        return False
    return all(map(fnmatchcase, name, pattern))


# ---- tandem.data.files
def files_by_split(key: str, told: Any, files: Files) -> dict[str, Path]:
    """Split → file, in the order train, dev, test, others; nothing of None.

    Raises:
        UserError: no mapping from names of splits, or a file that is not there.
    """
    if told is None:
        return {}
    if not isinstance(told, dict) or not all(isinstance(split, str) and SPLIT.fullmatch(split) for split in told):
        raise UserError(f"{key}: {told!r}; a file by split is needed, as in {key}: {{test: FILE}}")
    return {split: files.find(told[split]) for split in sorted(told, key=order)}
