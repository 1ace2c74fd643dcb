"""Archives with the same bytes for the same files, `.tar.gz` and `.zip`; and bundles that were unpacked."""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tandem.errors import UserError
from tandem.store.artifact import FileRecord
from tandem.store.files import replacing

TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
LIST = "bundle.json"
AGAIN = "again"  # the folder in an unpacked bundle where its table is made again

Content = bytes | Path


def write_archive(files: dict[str, Content], out: Path, top: str) -> None:
    """Write the archive under a temporary name, then rename it; files by name, no times, no owners."""
    files = dict(sorted(files.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial:
        (_zip if out.suffix == ".zip" else _tar)(files, partial, top)


def record(content: Content) -> FileRecord:
    """A file's size and checksum."""
    with _open(content) as file:
        return FileRecord(bytes=_size(content), sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _size(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _open(content: Content) -> io.BufferedReader | io.BytesIO:
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _tar(files: dict[str, Content], path: Path, top: str) -> None:
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for place, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{place}")
            entry.size, entry.mode = _size(content), 0o644
            with _open(content) as file:
                archive.addfile(entry, file)


def _zip(files: dict[str, Content], path: Path, top: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, content in files.items():
            entry = zipfile.ZipInfo(f"{top}/{place}", TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with _open(content) as file, archive.open(entry, "w", force_zip64=_size(content) > 1 << 31) as into:
                while piece := file.read(1 << 20):
                    into.write(piece)


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    Attributes:
        folder: where it was unpacked.
        files: size and checksum of each file by its place.
        left_out: keys of the artifacts of which only the manifest was packed.
    """

    folder: Path
    files: dict[str, FileRecord]
    left_out: frozenset[str]

    @classmethod
    def at(cls, folder: Path) -> "Bundle | None":
        """The bundle in a folder; None if there is none."""
        path = folder / LIST
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            files = TypeAdapter(dict[str, FileRecord]).validate_python(data["files"])
            return cls(folder, files, frozenset(data["left_out"]))
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            raise UserError(f"{path}: is not what `tandem bundle` writes; unpack the archive anew") from None

    @property
    def list_path(self) -> Path:
        """The file that lists the others."""
        return self.folder / LIST

    @property
    def results(self) -> Path:
        """Its artifacts."""
        return self.folder / "results"

    def lists(self, path: Path) -> bool:
        """Whether a file below the folder belongs to the bundle, or to its table made again."""
        place = path.relative_to(self.folder)
        return place.as_posix() in self.files or path == self.list_path or place.parts[0] == AGAIN
