"""Read text files line by line; readers of all formats use this module, so that bad bytes give one clear error.

Planning, too, reads the beginnings of files with this module, so it does not import numpy.

Lines end at "\\n" only, with or without "\\r" before it: texts carry U+2028 and other characters that Python's
`splitlines` takes for line ends. A byte-order mark at the start is dropped. gzip, xz, bzip2, lz4, Zstandard, and a zip
archive of one file, are recognised by their first bytes.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

from tandem.errors import UserError

LONGEST_LINE = 32 << 20  # bytes of a line; a longer one is a file that is not what it claims
BOM = b"\xef\xbb\xbf"
# first bytes of packed files; for bzip2 they include the mark of its first block, or of the end
PACKINGS = {
    "gzip": rb"\x1f\x8b",
    "zip": rb"PK\x03\x04",
    "xz": rb"\xfd7zXZ\x00",
    "bzip2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "lz4": rb"\x04\x22\x4d\x18",
    "zstd": rb"\x28\xb5\x2f\xfd",
}
_MARK_BYTES = 10  # bytes that say how a file is packed
# what may be added to the name of any text file
PACKED_ENDS = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
# Names of files that editors, systems and downloads leave: test.tsv.bak, test.tsv~, .DS_Store, Thumbs.db.
_LEFTOVER = re.compile(
    r"[.#].*|~\$.*|.*(~|\.(bak|backup|old|orig|rej|save|sw[op]|te?mp|part|partial|crdownload))|thumbs\.db|desktop\.ini|__macosx",
    re.IGNORECASE,
)
BYTES_PER_PIECE = 1 << 18  # bytes read at a time
# largest absolute value of a score; float32 reaches further, so that tied scores can be lowered
_LARGEST_NUMBER = 1e38
# what reading a packed file may raise; `OSError` covers the packings without errors of their own
PACKING_ERRORS = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError)
_DECODER = json.JSONDecoder()
JsonObject = dict[str, Any]  # of a file, unchecked


def is_leftover(path: Path) -> bool:
    """Return whether a file's name is one of those that editors, systems or downloads leave behind."""
    return _LEFTOVER.fullmatch(path.name) is not None


def strip_packing(name: str) -> str:
    """Return a file's name without the ending of its packing: `corpus.jsonl` for corpus.jsonl.zst.

    The ending `.zip` stays if there is no other ending before it: only the archive's content shows the format.
    """
    for end in PACKED_ENDS:
        if name.lower().endswith(end):
            stem = name[: -len(end)]
            return name if end == ".zip" and not Path(stem).suffix else stem
    return name


def identify_packing(path: Path) -> str:
    """Return the name of the format in which a file is packed, by its first bytes; empty if it is plain."""
    try:
        with open(path, "rb") as file:
            start = file.read(_MARK_BYTES)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); name a readable file"
        ) from None
    for name, mark in PACKINGS.items():
        if re.match(mark, start):
            return name
    return ""


def open_bytes(path: Path) -> io.BufferedIOBase:
    """Return a file for reading, unpacked if its first bytes show that it is packed.

    A `UserError` if it cannot be opened.
    """
    match identify_packing(path):
        case "zip":
            return _open_member(path)
        case "gzip":
            return gzip.open(path, "rb")
        case "xz":
            return lzma.open(path, "rb")
        case "bzip2":
            return bz2.open(path, "rb")
        case "lz4" | "zstd" as name:
            import pyarrow as pa  # not needed at the start of planning

            return io.BufferedReader(
                pa.CompressedInputStream(pa.OSFile(str(path)), name), BYTES_PER_PIECE
            )
    return open(path, "rb")


def find_member(path: Path) -> tuple[zipfile.ZipFile, str]:
    """Return a zip archive, and the name of its only file, apart from those that macOS adds."""
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise UserError(f"{path}: zip file is truncated or broken; fetch it again") from None
    names = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not name.startswith("__MACOSX/")
    ]
    if len(names) != 1:
        raise UserError(
            f"{path}: zip file holds {len(names)} files, one is allowed; name it as path, or unpack it"
        )
    return archive, names[0]


def _open_member(path: Path) -> io.BufferedIOBase:
    archive, name = find_member(path)
    try:
        return io.BufferedReader(archive.open(name))  # type: ignore[type-var]
    except RuntimeError as error:  # a password; an unknown compression, too
        raise UserError(f"{path}: {error}; unpack it and name its file") from None


def iterate_lines(
    path: Path, longest: int = LONGEST_LINE, skipped: int = 0
) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without its end) of a UTF-8 file, plain or packed.

    The first `skipped` lines are left out.

    Raises:
        UserError: bytes that are not UTF-8, a broken gzip or zip file, a line of more than `longest` bytes, or lines
            that end only in "\\r".
    """
    number = 0
    with open_bytes(path) as file:
        try:
            for piece in _split_lines(path, file, longest):
                passed = min(skipped - number, len(piece)) if number < skipped else 0
                number += passed
                for line in piece[passed:]:
                    number += 1
                    if len(line) >= longest:
                        error = f"{path}:{number}: longer than {longest >> 20} MiB"
                        raise UserError(f"{error}; split it or mend its line ends")
                    if number == 1 and line.startswith(BOM):
                        line = line[len(BOM) :]
                    yield number, line.rstrip(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            where = (
                f"{path}:{number}: not UTF-8, {error.reason} at byte {error.start + 1} of the line"
            )
            raise UserError(f"{where}; convert the file to UTF-8") from None
        except PACKING_ERRORS as error:
            raise make_broken_error(path, f"line {number}", error) from None


def make_broken_error(path: Path, last: str, error: Exception) -> UserError:
    """Return the error of a file that could be read up to a place, such as `line 7`, and no further."""
    is_cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
    why = "truncated" if is_cut else f"broken ({error})"
    return UserError(
        f"{path}: {identify_packing(path) or 'plain'} file is {why} after {last}; fetch it again"
    )


def is_end(line: str, rest: Iterator[tuple[int, str]]) -> bool:
    """Return whether a line and all that follow are blank, so that they are the end of the file and no records."""
    return not line.strip() and not any(other.strip() for _, other in rest)


def _split_lines(path: Path, file: io.BufferedIOBase, longest: int) -> Iterator[list[bytes]]:
    """Yield lines without their "\\n", those of a piece of the file at a time; the last may be cut at `longest`."""
    begun: list[bytes] = []  # pieces of a line whose end has not been read
    held = 0  # number of their bytes
    has_ends = False
    while held < longest and (piece := file.read1(BYTES_PER_PIECE)):
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            yield ended
            begun = []
            held = 0
            has_ends = True
        begun.append(rest)
        held += len(rest)
    if held:
        last = b"".join(begun)
        if not has_ends and b"\r" in last.rstrip(b"\r"):
            why = "its lines end in carriage returns alone, as on an old Mac"
            raise UserError(f"{path}: {why}; end them in line feeds")
        yield [last]


def read_records(path: Path, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line`, JSON object) of each line of a JSON-lines file except the first `skipped`."""
    name = str(path)
    numbered = iterate_lines(path, skipped=skipped)
    for number, line in numbered:
        where = f"{name}:{number}"
        try:
            record, end = _DECODER.raw_decode(line) if line.startswith("{") else (None, -1)
            if end != len(line):  # `json.loads` takes longer
                record = json.loads(line)
        except json.JSONDecodeError as error:
            if is_end(line, numbered):
                return
            message = f"{where}: not valid JSON, {error.msg} at column {error.colno}"
            raise UserError(f"{message}; one JSON object a line is allowed") from None
        except RecursionError:
            raise UserError(
                f"{where}: JSON nested too deep; one flat object a line is allowed"
            ) from None
        if not isinstance(record, dict):
            raise UserError(
                f"{where}: a JSON {type(record).__name__}; one JSON object a line is allowed"
            )
        yield where, record


def describe_columns(columns: Sequence[str], by: str) -> str:
    """Describe a line of the wrong length for its error: `3 columns by tabs`, or `an empty line`."""
    return (
        f"{len(columns)} columns by {by}"
        if any(column.strip() for column in columns)
        else "an empty line"
    )


def read_fields(path: Path, what: str, *counts: int) -> Iterator[tuple[str, list[str]]]:
    """Yield (`file:line`, columns) of each line of a tab-separated file without quoting.

    `what` describes a line, for the error.
    """
    name = str(path)
    numbered = iterate_lines(path)
    for number, line in numbered:
        columns = line.split("\t")
        if len(columns) not in counts:
            if is_end(line, numbered):
                return
            allowed = " or ".join(map(str, counts))
            held = describe_columns(columns, "tabs")
            raise UserError(f"{path}:{number}: {held}; a line is {what}: {allowed} columns")
        yield f"{name}:{number}", columns


def read_text(where: str, record: JsonObject, key: str, number: bool = False) -> str:
    """Return a record's field as text.

    With `number` it may be a whole number too, as for ids. `where` is its place, for errors.
    """
    value = record.get(key)
    if type(value) is str and value.isascii():
        return value
    if number and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        shown = json.dumps(value, default=str, skipkeys=True)[:60] if key in record else "missing"
        raise UserError(f"{where}: {key} is {shown}; a text is needed")
    return require_unicode(where, key, value)


def require_unicode(where: str, key: str, value: str) -> str:
    """Return a text; refuse one that UTF-8 cannot carry: JSON's escapes can spell half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{where}: {key} holds half of a surrogate pair; valid Unicode is needed"
        ) from None
    return value


def parse_label(where: str, value: str) -> int:
    """Return a column as a label, 0 or 1."""
    if value not in ("0", "1"):
        raise UserError(f"{where}: label is {value[:40]!r}; 0 and 1 are allowed")
    return int(value)


def parse_score(where: str, what: str, value: str) -> float:
    """Return a column as a number that float32 holds, which is how scores are stored."""
    number = _parse_float(value)
    if not abs(number) <= _LARGEST_NUMBER:
        bounds = f"a number from -{_LARGEST_NUMBER:g} to {_LARGEST_NUMBER:g} is needed"
        needed = "a number is needed" if isnan(number) else bounds
        raise UserError(f"{where}: {what} is {value[:40]!r}; {needed}")
    return number


def parse_whole(where: str, what: str, value: str) -> int:
    """Return a column as a whole number of 32 bits, which is how relevance is stored; `1.0` is 1."""
    number = _parse_float(value)
    if not number.is_integer():
        raise UserError(f"{where}: {what} is {value[:40]!r}; a whole number is needed")
    if not -(2**31) <= number < 2**31:
        raise UserError(f"{where}: {what} is {value[:40]}; a whole number of 32 bits is needed")
    return int(number)


def _parse_float(value: str) -> float:
    """Return a text as a number; NaN if it is not one, such as `1_0`, which Python would read as 10."""
    try:
        return nan if "_" in value else float(value)
    except ValueError:
        return nan
