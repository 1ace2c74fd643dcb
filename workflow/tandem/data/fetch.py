"""Download a file from its mirrors or its URL; resume it where it broke off, and try again if the fault may pass.

A file gets its final name only when it is complete and checked. Downloads are stored as `<host>/<path>` in the folder
`TANDEM_DATA` (by default `~/.cache/tandem`), so that a folder filled on one machine serves another without network.
"""

# pooch checks and caches, too, but restarts a broken download, and two processes would both fetch the same file.

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from tandem.cluster.progress import Progress, say
from tandem.config.datasets import File
from tandem.config.settings import Mirror
from tandem.errors import UserError
from tandem.redaction import fingerprinted, redacted, without_secrets
from tandem.store.files import locked, try_lock, write_json

if TYPE_CHECKING:
    import requests

DATA_VARIABLE = "TANDEM_DATA"
_TRIES = 5  # in a row without a new byte
_LONGEST_PAUSE_SECONDS = 60.0  # seconds
_TIMEOUT_SECONDS = (20, 60)  # seconds to connect, and between two bytes
_BYTES_PER_PIECE = 1 << 16
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tandem-retrieval"}
_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


def get_data_folder() -> Path:
    """Return the folder of `TANDEM_DATA`, absolute; it need not exist yet."""
    return Path(os.environ.get(DATA_VARIABLE) or "~/.cache/tandem").expanduser().absolute()


def list_alternatives(url: str, mirrors: Sequence[Mirror]) -> list[str]:
    """Return URLs to try in order: each mirror whose `from` the URL begins with, then the URL itself."""
    urls = []
    for mirror in mirrors:
        if url.startswith(mirror.from_):
            urls.append(mirror.to + url.removeprefix(mirror.from_))
    return list(dict.fromkeys([*urls, url]))


def get_local_path(url: str) -> Path | None:
    """Return the path of a `file://` URL; None for any other."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def get_cache_path(url: str) -> Path:
    """Return the file that keeps a URL's bytes: `<host>/<path>` in the data folder, with a query after `?`.

    The name has no user and password; a secret in the query is replaced by the beginning of its sha256.

    Raises:
        UserError: a URL without a host or a file name, or with `..` in its path.
    """
    parts = urlsplit(fingerprinted(url))
    path = unquote(parts.path).lstrip("/")
    host = parts.netloc.rpartition("@")[2]
    names_file = bool(path) and not path.endswith("/")
    if not host or not names_file or {"", ".", ".."} & set(path.split("/")):
        raise UserError(f"{url}: names no file; a URL is https://host/path/file")
    name = f"{path}?{quote(parts.query, safe='=&')}" if parts.query else path
    return get_data_folder() / quote(host, safe=".-_") / name


def find_mismatch(path: Path, file: File) -> str | None:
    """Describe how a file's size or checksum differs from what its entry says; None if it does not."""
    if file.bytes is not None:
        size = path.stat().st_size
        if size != file.bytes:
            return f"has {size:,} bytes, expected {file.bytes:,}"
    for name, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is None:
            continue
        with open(path, "rb") as opened:
            digest = hashlib.file_digest(opened, name).hexdigest()
        if digest != expected:
            return f"has {name} {digest}, expected {expected}"
    return None


class TransferError(Exception):
    """State in a few words why a URL fails."""


class InterruptedTransferError(TransferError):
    """Report a fault that may pass: another try is worth it, after `pause` seconds if the server demands it."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


def fetch(file: File, target: Path, mirrors: Sequence[Mirror] = (), pause: float = 1.0) -> Path:
    """Fetch a file from its mirrors or its URL, resuming an earlier process' download.

    If several processes need the same file, one fetches it, and the others wait. A download that differs from what is
    expected is removed. `pause` is the number of seconds before the second try of a URL.

    Returns:
        `target`, or the file itself that a `file://` URL names: it is used where it is.
    Raises:
        UserError: no URL gives the file, or it cannot be written.
    """
    failures = []
    for url in list_alternatives(file.url, mirrors):
        try:
            path = get_local_path(url)
            if path is None:
                _download(url, file, target, pause)
                return target
            if error := find_mismatch(path, file) if path.is_file() else "is not a file":
                raise TransferError(error)
            return path
        except TransferError as fault:
            failures.append(f"{url} {fault}" if url != file.url else str(fault))
        except OSError as fault:
            where = f"{target}: cannot be written ({fault.strerror or fault})"
            raise UserError(
                f"{where}; set {DATA_VARIABLE} to a folder of yours with enough space"
            ) from None
    message = f"{file.url}: cannot be fetched: {'; '.join(failures)}"
    raise UserError(
        f"{message}. Name another place in execution.mirrors, or put the file at {target}"
    )


def _download(url: str, file: File, target: Path, pause: float) -> None:
    label = f"download {target.name}"
    part = PartialDownload(target)
    has_checksum = bool(file.sha256 or file.md5)
    with _lock_download(target, label):
        if target.is_file():
            return
        resumed = part.size
        needed = (file.bytes or 0) - resumed
        free = shutil.disk_usage(target.parent).free
        if needed > free:
            message = f"{target.parent}: {free / 1e6:,.1f} MB are free, {target.name} needs {needed / 1e6:,.1f} MB"
            raise UserError(f"{message}; set {DATA_VARIABLE} to a folder with enough space")

        _transfer(url, part, label, has_checksum, pause)
        while error := find_mismatch(part.path, file):
            part.remove()
            if not resumed:
                raise TransferError(error)
            say(f"{label} · what was resumed {error}: from the start")
            resumed = 0
            _transfer(url, part, label, has_checksum, pause)
        os.replace(part.path, target)
        part.remove()


@contextmanager
def _lock_download(target: Path, label: str) -> Iterator[None]:
    """Hold the lock of a file's download; it is deleted once the file exists, which waiting processes then find."""
    lock = target.with_name(f".{target.name}.lock")
    target.parent.mkdir(parents=True, exist_ok=True)
    if (free := try_lock(lock)) is None:
        say(f"{label} · another process is at it: waiting")
    else:
        free.release()
    with locked(lock):
        yield
        lock.unlink(missing_ok=True)


class Version(NamedTuple):
    """Identify the file that a part belongs to: `validator` is its ETag or Last-Modified (RFC 9110 §8.8).

    `url` is without secrets: file names already distinguish URLs by their secrets, and a signature may be renewed.
    """

    url: str
    validator: str | None
    size: int | None


class PartialDownload:
    """Keep the bytes of a download so far in `<target>.part`, and the version that they belong to in `….part.json`."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self._version = target.with_name(f"{target.name}.part.json")

    @property
    def size(self) -> int:
        """Return the number of bytes written so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def version(self) -> Version | None:
        """Return the version that the part belongs to; None if it is unknown."""
        try:
            return Version(**json.loads(self._version.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def begin(self, version: Version) -> None:
        """Start a version at its first byte."""
        self.remove()
        write_json(self._version, version._asdict())

    def remove(self) -> None:
        """Delete the part and its version."""
        self.path.unlink(missing_ok=True)
        self._version.unlink(missing_ok=True)


def _transfer(url: str, part: PartialDownload, label: str, trust: bool, pause: float) -> None:
    """Finish a partial download from `url`; give up after `_TRIES` tries in a row without a new byte.

    The download is continued if the server still has the same version. With `trust` it is continued even if the server
    does not identify versions: a checksum decides in the end. The pause doubles with each try.
    """
    furthest = part.size
    failures = 0
    while True:
        try:
            return _request(url, part, label, trust)
        except InterruptedTransferError as error:
            failures = failures + 1 if part.size <= furthest else 0
            furthest = max(furthest, part.size)
            if failures >= _TRIES:
                raise TransferError(f"{error}, {_TRIES} times in a row") from None
            wait = min(max(pause * 2**failures, error.pause), _LONGEST_PAUSE_SECONDS)
            say(f"{label} · {error}; another try in {wait:.0f} s")
            time.sleep(wait)


def _request(url: str, part: PartialDownload, label: str, trust: bool) -> None:
    import requests  # an eighth of a second, which planning and most stages need not wait for

    present = part.size
    known = part.version
    public_url = redacted(url)
    headers = dict(_HEADERS)
    if present and known and known.url == public_url and (known.validator or trust):
        if present == known.size:
            return
        headers["Range"] = f"bytes={present}-"
        if known.validator:
            headers["If-Range"] = known.validator
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS)
    except requests.RequestException as error:
        raise _make_fault(error) from None

    with response:
        start, size = _place(response)
        is_continued = start == present and known is not None and size == known.size
        if start is None or (start and not is_continued):
            part.remove()
            raise InterruptedTransferError("the file is not the one that was begun")
        if start == 0:
            etag = response.headers.get("ETag", "")
            # no weak ETag: §13.1.5
            validator = etag if etag.startswith('"') else response.headers.get("Last-Modified")
            part.begin(Version(public_url, validator, size))
        total = (size or 0) >> 20  # bytes to MiB
        with (
            open(part.path, "ab") as out,
            Progress(label, total, "MiB", done=start >> 20) as progress,
        ):
            for piece in _iterate_pieces(response):
                out.write(piece)
                progress.add((out.tell() >> 20) - progress.done)
            out.flush()
            os.fsync(out.fileno())
        if size is not None and part.size != size:
            raise InterruptedTransferError(
                f"the connection ended after {part.size:,} of {size:,} bytes"
            )


def _place(response: "requests.Response") -> tuple[int | None, int | None]:
    """Return (first byte of the answer, size of the file); the first is None if the requested range does not exist."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and match and match[1]:
        return int(match[1]), None if match[2] == "*" else int(match[2])
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    if response.status_code in (206, 416):
        return None, None
    why = f"{response.status_code} {response.reason}"
    if response.status_code in _PASSING_STATUSES:
        after = response.headers.get("Retry-After", "")
        raise InterruptedTransferError(why, float(after) if after.isdigit() else 0.0)
    raise TransferError(why)


def _iterate_pieces(response: "requests.Response") -> Iterator[bytes]:
    import urllib3

    try:
        yield from response.raw.stream(_BYTES_PER_PIECE, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _make_fault(error) from None


def _make_fault(error: BaseException) -> TransferError:
    """Return an error with the first cause of a library's exception; another try is worth it if the URL is valid."""
    import requests

    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return TransferError("no valid URL")
    while error.__context__ is not None:
        error = error.__context__
    text = getattr(error, "strerror", None) or str(error)
    return InterruptedTransferError(f"the connection failed ({without_secrets(text)[:160]})")
