"""Archives with the same bytes for the same files: `.tar.gz` and `.zip`."""

import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can tell
Content = bytes | Path


def write(files: dict[str, Content], out: Path, top: str) -> None:
    """Write the archive under a temporary name, then rename it; files by name, no times, no owners.

    Args:
        files: place in the archive → content, or the file that has it.
        out: ends in `.tar.gz` or `.zip`.
        top: the folder that all of it lies in.
    """
    files = dict(sorted(files.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        (_zip if out.suffix == ".zip" else _tar)(files, partial, top)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


def told(content: Content) -> dict[str, Any]:
    """A file's size and checksum."""
    with _opened(content) as file:
        return {"bytes": _size(content), "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _size(content: Content) -> int:
    """Bytes of a content."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _opened(content: Content) -> Any:
    """A content to read from."""
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _tar(files: dict[str, Content], path: Path, top: str) -> None:
    """A gzipped tar."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for place, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{place}")
            entry.size, entry.mode = _size(content), 0o644
            with _opened(content) as file:
                archive.addfile(entry, file)


def _zip(files: dict[str, Content], path: Path, top: str) -> None:
    """A zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, content in files.items():
            entry = zipfile.ZipInfo(f"{top}/{place}", TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            with _opened(content) as file, archive.open(entry, "w", force_zip64=_size(content) > 1 << 31) as into:
                while piece := file.read(1 << 20):
                    into.write(piece)
