"""Reading text files line by line: every format's reader goes through here, so that bad bytes get one clear line.

Lines end at "\\n" only, with or without "\\r" before it: texts carry U+2028 and other characters that Python's
`splitlines` takes for line ends. A byte-order mark at the start is dropped. gzip is told by its first bytes.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tandem.errors import UserError

LONGEST = 32 << 20  # bytes of a line; a longer one is a file that is not what it claims
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"


def open_bytes(path: Path) -> IO[bytes]:
    """A file for reading, gunzipped if its first bytes say so; a `UserError` if it cannot be opened."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == GZIP
        return gzip.open(path, "rb") if packed else open(path, "rb")  # type: ignore[return-value]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a readable file") from None


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, line without its end) of a UTF-8 file, plain or gzip.

    Raises:
        UserError: bytes that are no UTF-8, a broken or truncated gzip file, or a line longer than `LONGEST`.
    """
    number = 0
    with open_bytes(path) as file:
        try:
            while line := file.readline(LONGEST):
                number += 1
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    raise UserError(f"{path}:{number}: longer than {LONGEST >> 20} MiB; split it or mend its line ends")
                if number == 1 and line.startswith(BOM):
                    line = line[len(BOM) :]
                yield number, line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"{path}:{number}: not UTF-8, {error.reason} at byte {error.start + 1} of the line"
            raise UserError(f"{found}; convert the file to UTF-8") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            why = "truncated" if isinstance(error, EOFError) else f"broken ({error})"
            raise UserError(f"{path}: gzip file is {why} after line {number}; fetch it again") from None


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, JSON object) of each line of a JSON-lines file."""
    for number, line in lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            found = f"{where}: not valid JSON, {error.msg} at column {error.colno}"
            raise UserError(f"{found}; one JSON object a line is allowed") from None
        except RecursionError:
            raise UserError(f"{where}: JSON nested too deep; one flat object a line is allowed") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: a JSON {type(record).__name__}; one JSON object a line is allowed")
        yield where, record


def fields(path: Path, what: str, *counts: int) -> Iterator[tuple[str, list[str]]]:
    """(`file:line`, columns) of each line of a tab-separated file without quoting.

    Args:
        path: the file.
        what: the columns, for the error: `query id, document id`.
        counts: the numbers of columns that are allowed.
    """
    for number, line in lines(path):
        columns = line.split("\t")
        if len(columns) not in counts:
            allowed = " or ".join(map(str, counts))
            raise UserError(f"{path}:{number}: {len(columns)} columns by tabs; a line is {what}: {allowed} columns")
        yield f"{path}:{number}", columns


def text_of(where: str, record: dict[str, Any], key: str, number: bool = False) -> str:
    """A record's field as text.

    Args:
        where: the record's place, for the error.
        record: a JSON object.
        key: the field's name.
        number: whether a whole number is taken as text too, as for ids.
    """
    value = record.get(key)
    if number and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise UserError(f"{where}: {key} is {json.dumps(value)[:60]}; a text is needed")
    return clean(where, key, value)


def clean(where: str, key: str, value: str) -> str:
    """A text that UTF-8 can carry: JSON's escapes can spell half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: {key} holds half of a surrogate pair; valid Unicode is needed") from None
    return value


def whole(where: str, what: str, value: str) -> int:
    """A column as a whole number."""
    try:
        return int(value)
    except ValueError:
        raise UserError(f"{where}: {what} is {value[:40]!r}; a whole number is needed") from None
