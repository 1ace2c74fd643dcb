"""One URL's bytes into a part file over HTTP: resumed where it broke off, tried again where the fault may pass."""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import requests
import urllib3

from tandem.cluster.progress import Progress, say
from tandem.store.files import write_json

TRIES = 5  # in a row without a new byte
LONGEST_PAUSE = 60.0  # seconds
TIMEOUT = (20, 60)  # seconds to connect, and between two bytes
PIECE = 1 << 16
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tandem-retrieval"}
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class TransferError(Exception):
    """A URL's failure in a few words, for a message that lists those of all URLs."""


class InterruptedTransferError(TransferError):
    """A fault that may pass: another try is worth it, after `pause` seconds if the server demands it."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass(frozen=True)
class Version:
    """The file that a part belongs to.

    Its `validator` is an ETag or Last-Modified (RFC 9110 §8.8), its `size` in bytes that of the whole.
    """

    url: str
    validator: str | None
    size: int | None


class Part:
    """A file that is being downloaded, open for appending by this process alone.

    Its bytes are in `<target>.part`, its version in `<target>.part.json`.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file
        self._notes = path.with_name(f"{path.name}.json")

    @property
    def size(self) -> int:
        """Bytes written so far."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size

    @property
    def version(self) -> Version | None:
        """The version that it is a part of, None if unknown."""
        try:
            return Version(**json.loads(self._notes.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def restart(self, version: Version | None = None) -> None:
        """Empty it, for the beginning of a version."""
        self.file.truncate(0)
        self._notes.unlink(missing_ok=True)
        if version:
            write_json(self._notes, asdict(version))

    def finish(self, target: Path) -> None:
        """Give it its final name, once its bytes are on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.replace(self.path, target)
        self._notes.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete it with its version."""
        self.path.unlink()
        self._notes.unlink(missing_ok=True)


@contextmanager
def open_part(target: Path) -> Iterator[Part | None]:
    """The part of a file, locked; None if the file exists, or another process finishes it meanwhile.

    The lock ends with its process. A lock on a part that was renamed or removed meanwhile protects nothing, so it is
    taken again.
    """
    path = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    while not target.is_file():
        with open(path, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"download {target.name} · another process is at it: waiting")
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_open_at(file, path):
                continue
            if target.is_file():
                path.unlink()
                break
            try:
                yield Part(path, file)
            finally:
                if _is_open_at(file, path) and not path.stat().st_size:
                    Part(path, file).remove()
            return
    yield None


def _is_open_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def transfer(url: str, part: Part, label: str, trust: bool, pause: float) -> None:
    """Complete a part from `url`; it is continued if it is of the same version.

    Args:
        url: http or https.
        part: what is there.
        label: for progress.
        trust: continue a part that has no validator: a checksum decides in the end.
        pause: seconds before the second try, doubled each time.
    Raises:
        TransferError: refused, or no new byte in `TRIES` tries in a row.
    """
    furthest, failures = part.size, 0
    while True:
        try:
            return _request(url, part, label, trust)
        except InterruptedTransferError as error:
            failures = failures + 1 if part.size <= furthest else 0
            furthest = max(furthest, part.size)
            if failures >= TRIES:
                raise TransferError(f"{error}, {TRIES} times in a row") from None
            wait = min(max(pause * 2**failures, error.pause), LONGEST_PAUSE)
            say(f"{label} · {error}; another try in {wait:.0f} s")
            time.sleep(wait)


def _request(url: str, part: Part, label: str, trust: bool) -> None:
    """One request; returns when the part is complete."""
    present, known = part.size, part.version
    headers = dict(HEADERS)
    if present and known and known.url == url and (known.validator or trust):
        if present == known.size:
            return
        headers |= {"Range": f"bytes={present}-"} | ({"If-Range": known.validator} if known.validator else {})
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    except requests.RequestException as error:
        raise _fault(error) from None
    with response:
        start, size = _place(response)
        if start is None or (start and (start != present or known is None or size != known.size)):
            part.restart()
            raise InterruptedTransferError("the file is not the one that was begun")
        if start == 0:
            etag = response.headers.get("ETag", "")
            validator = etag if etag.startswith('"') else response.headers.get("Last-Modified")  # no weak ETag: §13.1.5
            part.restart(Version(url, validator, size))
        with Progress(label, (size or 0) >> 20, "MiB", done=start >> 20) as progress:
            for piece in _pieces(response):
                part.file.write(piece)
                progress.add((part.size >> 20) - progress.done)
        if size is not None and part.size != size:
            raise InterruptedTransferError(f"the connection ended after {part.size:,} of {size:,} bytes")


def _place(response: requests.Response) -> tuple[int | None, int | None]:
    """(first byte of the answer, size of the file); the first is None if the requested range does not exist."""
    match = RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and match and match[1]:
        return int(match[1]), None if match[2] == "*" else int(match[2])
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    if response.status_code in (206, 416):
        return None, None
    why = f"{response.status_code} {response.reason}"
    if response.status_code in PASSING:
        after = response.headers.get("Retry-After", "")
        raise InterruptedTransferError(why, float(after) if after.isdigit() else 0.0)
    raise TransferError(why)


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """The answer's bytes as they are sent; a body shorter than announced is a fault."""
    try:
        yield from response.raw.stream(PIECE, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _fault(error) from None


def _fault(error: Exception) -> TransferError:
    """A library's exception in a few words; an invalid URL is no passing fault."""
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return TransferError("no valid URL")
    cause: BaseException = error
    while isinstance(inner := getattr(cause, "reason", None) or next(iter(cause.args), None), BaseException):
        cause = inner
    message = cause.args[0] if cause.args and isinstance(cause.args[0], str) else str(cause)
    text = re.sub(r"^<[^>]*>: |^\w+\([^)]*\): ", "", message)
    return InterruptedTransferError(f"the connection failed ({text[:160]})")
