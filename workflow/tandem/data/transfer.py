"""One file over HTTP into a part file: what is there is kept, and only the rest is asked for.

The server compares the validator of the version that was begun (`If-Range`, RFC 9110 §13.1.5): of a changed file it
sends the whole.
"""

import re
import time
from collections.abc import Iterator

import requests
import urllib3

from tandem.cluster.progress import Progress, say
from tandem.data.part import Part, Version

TRIES = 5  # in a row without a new byte
LONGEST_PAUSE = 60.0  # seconds
TIMEOUT = (20, 60)  # seconds to connect, and between two bytes
PIECE = 1 << 16
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tandem-retrieval"}
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class TransferError(Exception):
    """What one URL answered, for the line that names them all."""


class InterruptedTransferError(TransferError):
    """A fault that may pass: another try is worth it, after `pause` seconds if the server said so."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


def transfer(url: str, part: Part, label: str, trust: bool, pause: float) -> None:
    """Complete a part from `url`.

    Args:
        url: http or https.
        part: what it holds is kept if it is of the same version.
        label: for progress.
        trust: go on with a part that has no validator: a checksum decides in the end.
        pause: seconds before the second try, doubled each time.
    Raises:
        TransferError: refused, or no new byte in `TRIES` tries in a row.
    """
    furthest, failures = part.size, 0
    while True:
        try:
            return _once(url, part, label, trust)
        except InterruptedTransferError as error:
            failures = failures + 1 if part.size <= furthest else 0
            furthest = max(furthest, part.size)
            if failures >= TRIES:
                raise TransferError(f"{error}, {TRIES} times in a row") from None
            wait = min(max(pause * 2**failures, error.pause), LONGEST_PAUSE)
            say(f"{label} · {error}; another try in {wait:.0f} s")
            time.sleep(wait)


def _once(url: str, part: Part, label: str, trust: bool) -> None:
    """One request; returns when the part is complete."""
    have, known = part.size, part.version
    headers = dict(HEADERS)
    if have and known and known.url == url and (known.validator or trust):
        if have == known.size:
            return
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": known.validator} if known.validator else {})
    try:
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    except requests.RequestException as error:
        raise _fault(error) from None
    with response:
        start, size = _place(response)
        if start is None or (start and (start != have or known is None or size != known.size)):
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
    """(first byte of the answer, size of the file); the first is None if the range asked for is not there."""
    told = RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code == 206 and told and told[1]:
        return int(told[1]), None if told[2] == "*" else int(told[2])
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
    """What a library's exception says in a few words; a URL nobody can ask for is no passing fault."""
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return TransferError("no valid URL")
    cause: BaseException = error
    while isinstance(inner := getattr(cause, "reason", None) or next(iter(cause.args), None), BaseException):
        cause = inner
    told = cause.args[0] if cause.args and isinstance(cause.args[0], str) else str(cause)
    text = re.sub(r"^<[^>]*>: |^\w+\([^)]*\): ", "", told)
    return InterruptedTransferError(f"the connection failed ({text[:160]})")
