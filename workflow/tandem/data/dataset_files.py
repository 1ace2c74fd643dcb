"""Find a dataset's files in the folder or archive that `path` names, or download those that its entry's `files` name.

Any file may be packed, which the end of its name shows. From a downloaded zip or tar archive only the files that an
entry names are unpacked, from the archive of `path` all files. Nothing is unpacked outside their folder.
"""

import hashlib
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tandem.cluster.progress import say
from tandem.config.datasets import File
from tandem.config.parsing import read
from tandem.config.settings import Mirror
from tandem.data.fetch import fetch, find_mismatch, get_cache_path, get_data_folder, get_local_path
from tandem.data.reading import PACKED_ENDS, is_leftover, strip_packing
from tandem.errors import UserError
from tandem.store.files import locked, replacing
from tandem.store.job import Job

_HERE = "./"
_WHOLE_FOLDER = "files"  # the folder of an archive that is unpacked as a whole


class DatasetFiles:
    """Find the files of one dataset.

    With `path` (in `job.execution`) files are looked for only in that folder or archive. Without it they are those of
    `files`, taken from the folder `TANDEM_DATA`, the `mirrors` or their URLs when they are needed; `name` is the
    dataset's name.
    """

    def __init__(self, job: Job) -> None:
        execution = job.execution
        self._downloads: Downloads | None = None
        if execution.path:
            self.folder = open_folder(Path(execution.path))
        elif isinstance(execution.files, dict) and execution.files:
            name = execution.name or job.out.parent.parent.name
            entries = {
                key: read(File, file, f"datasets.{name}.files.{key}")
                for key, file in execution.files.items()
            }
            self._downloads = Downloads(name, entries, execution.mirrors)
            self.folder = self._downloads.folder
        else:
            raise UserError("path: missing; name the folder that holds the dataset's files")
        self.place = (
            f"files of dataset {self._downloads.dataset}"
            if self._downloads
            else str(execution.path)
        )

    def find_optional(self, *names: str) -> Path | None:
        """Return the first of several names (`/` allowed) that exists, plain or packed; None if none does."""
        locate: Callable[[str], Path | None] = (
            self._downloads.find if self._downloads else self.folder.joinpath
        )
        for name in names:
            files = [f"{name}{end}" for end in ("", *PACKED_ENDS)]
            present = [path for path in map(locate, files) if path and path.is_file()]
            if present:
                return _drop_packed_twins(present)[0]
        return None

    def find(self, *names: str) -> Path:
        """Return the same as `find_optional`; raise a `UserError` that lists the names if no file exists."""
        path = self.find_optional(*names)
        if path is None:
            raise UserError(
                f"{self.place}: holds no {' or '.join(names)} (plain or packed); put it there"
            )
        return path

    def glob(self, pattern: str, required: bool = True, twins: bool = False) -> list[Path]:
        """Return all files that match a pattern (`*` does not cross `/`), sorted by name; a `UserError` without any.

        Files that editors and systems leave behind are skipped, and a line names them. Without `twins`, only the plain
        one is returned of a file that exists both plain and packed.
        """
        match: Callable[[str], list[Path]] = (
            self._downloads.glob if self._downloads else self._match
        )
        paths = drop_leftovers(match(pattern))
        if not twins:
            paths = _drop_packed_twins(paths)
        if required and not paths:
            raise UserError(f"{self.place}: holds no {pattern}; put the files there")
        return paths

    def _match(self, pattern: str) -> list[Path]:
        """Return the files that match a pattern, and packed files that match it without the ending of their packing."""
        paths = set[Path]()
        for end in ("", *PACKED_ENDS):
            paths.update(self.folder.glob(f"{pattern}{end}"))
        return [path for path in paths if path.is_file()]


def _drop_packed_twins(paths: Sequence[Path]) -> list[Path]:
    """Return sorted paths, only one of them for a file in several packings; a line names each path left out."""
    first: dict[Path, Path] = {}
    for path in paths:  # a plain file comes before its packed ones
        chosen = first.setdefault(path.with_name(strip_packing(path.name)), path)
        if chosen is not path:
            say(f"{path} is ignored: {chosen.name} is read")
    return list(first.values())


def drop_leftovers(paths: Iterable[Path]) -> list[Path]:
    """Return sorted paths without files that editors and systems leave, such as test.tsv.bak; a line names these."""
    ordered = sorted(paths)
    leftovers = [path.name for path in ordered if is_leftover(path)]
    if leftovers:
        say(f"ignored, as what editors and systems leave: {', '.join(leftovers)}")
    return list(filterfalse(is_leftover, ordered))


class Downloads:
    """Find and download the files of one dataset.

    A file is looked for in the data folder as `<dataset>/<file>`, `<dataset>/<the URL's last part>` and
    `<host>/<path>`, and fetched to the last of these if it is in none. A file that was put there by hand is checked
    like a download.

    A name with `/` at its end means a folder of the URL's archive, `./` a folder whose files have no prefix.
    """

    def __init__(
        self, dataset: str, files: Mapping[str, File], mirrors: Sequence[Mirror] = ()
    ) -> None:
        where = f"datasets.{dataset}.files"
        for name, file in files.items():
            if name != _HERE and not is_below(name):
                raise UserError(
                    f"{where}: {name!r} is not a file name; `..` and a leading `/` are not allowed"
                )
            if name.endswith("/") and not (file.member or "").endswith("/"):
                raise UserError(f"{where}: {name} is a folder; its member must end in `/` too")
        self.dataset = dataset
        self.files = files
        self.mirrors = mirrors
        self.folder = get_data_folder() / dataset
        # folders, and the prefixes of their files' names
        self._folders = [(name, name.removeprefix(_HERE)) for name in files if name.endswith("/")]
        self._paths: dict[str, Path] = {}

    def find(self, name: str) -> Path | None:
        """Return a file's path, after downloading it if necessary; None if the entry does not name it."""
        if name in self.files:
            return self._path(name)
        for folder, prefix in self._folders:
            if name.startswith(prefix):
                path = self._path(folder) / name.removeprefix(prefix)
                if path.is_file():
                    return path
        return None

    def glob(self, pattern: str) -> list[Path]:
        """Return the files whose names match a pattern, sorted by name; `*` does not cross `/`."""
        parts = pattern.split("/")
        # The paths of files in folders are known; a file outside folders is fetched only if its name matches.
        paths: dict[str, Path | None] = {
            name: None for name in self.files if not name.endswith("/")
        }
        for name, prefix in self._folders:
            if not _match_parts(prefix.split("/")[:-1], parts, whole=False):
                continue
            folder = self._path(name)
            for path in folder.rglob("*"):
                paths[prefix + path.relative_to(folder).as_posix()] = path

        matching = []
        for name in sorted(paths):
            if _match_parts(name.split("/"), parts):
                matching.append(paths[name] or self._path(name))
        return [path for path in matching if path.is_file()]

    def is_present(self, name: str) -> bool:
        """Return whether a file is on this machine, whole or unpacked; nothing is fetched and no checksum computed."""
        file = self.files[name]
        places = self._places(file.url)
        if name != _HERE:
            places.append(self.folder / name)
        if file.member is not None:
            places.append(self._unpacked_folder(file) / file.member)
        local = get_local_path(file.url)
        if local is not None:
            places.append(local)
        return any(place.exists() for place in places)

    def _path(self, name: str) -> Path:
        """Return the path of a file, fetched if necessary.

        It ends in the file's name, from which formats read the split.
        """
        if name not in self._paths:
            self._paths[name] = self._link(name, self._fetched(name))
        return self._paths[name]

    def _link(self, name: str, path: Path) -> Path:
        if name == _HERE or path.name == Path(name).name:
            return path
        link = self.folder / ".named" / name.removesuffix("/")
        if not link.is_symlink() or link.readlink() != path:
            link.parent.mkdir(parents=True, exist_ok=True)
            with replacing(link) as partial_link:
                partial_link.symlink_to(path)
        return link

    def _fetched(self, name: str) -> Path:
        file = self.files[name]
        own = self.folder / name
        if name != _HERE and own.exists():
            return own if file.member is not None else _check_placed(own, file)

        places = self._places(file.url)
        folder = self._unpacked_folder(file)
        source = next((place for place in places if place.is_file()), None)
        if file.member is not None and source is None and (folder / file.member).exists():
            return folder / file.member  # the archive was deleted to save space
        source = _check_placed(source, file) if source else fetch(file, places[-1], self.mirrors)
        if file.member is None:
            return source

        # All members of this archive that the entry names are unpacked together: reading it takes long.
        members = {
            other.member for other in self.files.values() if other.url == file.url and other.member
        }
        return unpack_members(source, members, folder)[file.member]

    def _places(self, url: str) -> list[Path]:
        """Return the paths at which a URL's bytes may be; a download goes to the last."""
        own = self.folder / _get_last_part(url)
        if get_local_path(url):
            return [own]
        same_name = {
            file.url for file in self.files.values() if _get_last_part(file.url) == own.name
        }
        if same_name == {url}:
            return [own, get_cache_path(url)]
        return [get_cache_path(url)]

    def _unpacked_folder(self, file: File) -> Path:
        """Return the folder of an archive's members; each content of the archive has its own folder."""
        archive = self._places(file.url)[-1]
        return archive.with_name(f"{archive.name}.{(file.sha256 or file.md5 or 'files')[:10]}")


def _get_last_part(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _check_placed(path: Path, file: File) -> Path:
    """Return a file that was put there by hand; a `UserError` if it is another one."""
    if error := find_mismatch(path, file):
        raise UserError(
            f"{path}: {error}; delete it to have it fetched, or put the right file there"
        )
    return path


def _match_parts(name: list[str], pattern: list[str], whole: bool = True) -> bool:
    """Return whether the parts of a path match those of a pattern; without `whole`, as far as the path goes."""
    fits = len(name) == len(pattern) if whole else len(name) <= len(pattern)
    return fits and all(map(fnmatchcase, name, pattern))


# What reading a broken archive raises; RuntimeError is zipfile's for one with a password or an unknown compression.
_ARCHIVE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,
    OSError,
)


def is_below(name: str) -> bool:
    """Return whether a relative path stays below its folder: no `..`, no empty part, no leading slash."""
    if not name or name.startswith("/"):
        return False
    parts = name.removesuffix("/").split("/")
    return {"", ".", ".."}.isdisjoint(parts)


def unpack_members(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Unpack members of a zip or tar archive in one pass, unless they were unpacked from this archive before.

    Each gets its name only when it is whole. The time of the archive's last change (`ctime`) becomes its modification
    time, as the mark of its origin: another archive may have the same modification time.

    Args:
        members: paths inside the archive; the end of a file's path is enough where only that file ends so. A path with
            `/` at its end is a folder with all that is in it, `./` the whole archive.
    Returns:
        Member → path below `folder`.
    Raises:
        UserError: a broken archive, a member it lacks, a path that leaves `folder`, or a link.
    """
    for member in members:
        if member != _HERE and not is_below(member):
            raise UserError(
                f"member {member!r} of {archive}: a path inside the archive, without `..`, is needed"
            )
    mark = archive.stat().st_ctime_ns
    paths = {member: folder / (_WHOLE_FOLDER if member == _HERE else member) for member in members}
    with locked(folder / ".lock"):
        missing = [
            name
            for name, path in paths.items()
            if not (path.exists() and path.stat().st_mtime_ns == mark)
        ]
        if not missing:
            return paths
        say(f"unpack {archive.name} · {', '.join(missing).replace(_HERE, 'all files')}")
        temporary = folder / ".partial"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            for member, names in _extract(archive, missing, temporary).items():
                _move(archive, member, names, temporary, paths[member], mark)
        except _ARCHIVE_ERRORS as error:
            if isinstance(error, OSError) and error.errno is not None:
                what = f"cannot be unpacked ({error.strerror}); mend that"
            else:
                what = f"is not a whole zip or tar archive ({str(error) or type(error).__name__}); delete it"
            raise UserError(f"{archive}: {what} and try again") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return paths


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive."""
    try:
        return path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    except OSError:
        return False


def open_folder(path: Path) -> Path:
    """Return a dataset's `path` if it is a folder; if it is an archive, unpack it and return the folder of its files.

    An archive is unpacked into the data folder, and again if it has changed. If all of its files are in one folder,
    that folder is returned.

    Raises:
        UserError: neither a folder nor an archive, a broken archive, or a path in it that leaves its folder.
    """
    if path.is_dir():
        return path
    if not is_archive(path):
        raise UserError(
            f"{path}: no such folder; path names the folder or the archive that holds the dataset's files"
        )
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:10]
    target = get_data_folder() / "archives" / f"{path.name}.{digest}"
    folder = unpack_members(path, [_HERE], target)[_HERE]
    below = list(filterfalse(is_leftover, folder.iterdir()))
    if len(below) == 1 and below[0].is_dir():
        return below[0]
    return folder


def _extract(archive: Path, members: list[str], folder: Path) -> dict[str, list[str]]:
    """Extract the files that some members name; return member → their paths in the archive."""
    names: dict[str, list[str]] = {member: [] for member in members}
    for name, is_plain, open_entry in _iterate_entries(archive):
        matching = [member for member in members if _is_of_member(member, name)]
        if not matching:
            continue
        if not (is_plain and is_below(name)):
            raise UserError(
                f"{archive}: {name} is a link or leaves its folder; only plain files are taken"
            )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_entry() as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        for member in matching:
            names[member].append(name)
    return names


def _is_of_member(member: str, name: str) -> bool:
    """Return whether a path in an archive is a member's, or below it."""
    if member.endswith("/"):
        return member == _HERE or name.startswith(member)
    return f"/{name}".endswith(f"/{member}")


def _iterate_entries(archive: Path) -> Iterator[tuple[str, bool, Callable[[], Any]]]:
    """Yield (path, whether it is a plain file, how to open it) of each entry except folders; read each when yielded."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    is_link = stat.S_ISLNK(info.external_attr >> 16)
                    yield info.filename.removeprefix("./"), not is_link, partial(packed.open, info)
    else:
        with tarfile.open(archive, "r|*") as tape:
            for part in tape:
                if not part.isdir():
                    yield (
                        part.name.removeprefix("./"),
                        part.isfile(),
                        partial(tape.extractfile, part),
                    )


def _move(
    archive: Path, member: str, names: list[str], temporary: Path, path: Path, mark: int
) -> None:
    """Give the unpacked file or folder of a member its final name."""
    if not names:
        raise UserError(
            f"{archive}: holds no {member}; look what it is called there, or put the file in place by hand"
        )
    exact = member.endswith("/") or member in names
    if not exact and len(names) > 1:
        raise UserError(
            f"{archive}: several files end in {member}: {', '.join(names[:5])}; name one with its path"
        )
    source = temporary / (member if exact else names[0])
    if not source.exists():
        raise UserError(
            f"{archive}: {member} is named twice among the files that are taken from it; name it once"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    os.utime(source, ns=(mark, mark))
    if path.is_dir():
        shutil.rmtree(path)
    os.replace(source, path)
