"""Further records of files: rows of CSV, items of JSON arrays, and what the start or the end of a file reveals.

Files are read as by `data.reading`. Planning looks at the beginnings of files: nothing here imports numpy.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.reading import (
    BOM,
    BYTES_PER_PIECE,
    LONGEST_LINE,
    PACKING_ERRORS,
    JsonObject,
    find_member,
    identify_packing,
    is_end,
    iterate_lines,
    make_broken_error,
    open_bytes,
    require_unicode,
    strip_packing,
)
from tandem.errors import UserError

_BEGINNING_BYTES = 4096  # bytes by which a file's format is recognised
csv.field_size_limit(LONGEST_LINE)  # for the whole process; the default is 128 KiB
# levels of nested JSON in an item; ijson's memory grows with their square, and a question has four
DEEPEST_ITEM = 500


def get_member_name(path: Path) -> str:
    """Return the name that shows what a file is: without its packing's suffix, or the one in a zip archive."""
    name = strip_packing(path.name)
    if name.lower().endswith(".zip") and identify_packing(path) == "zip":
        _, member = find_member(path)
        return Path(member).name
    return name


def read_beginning(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked, from its first letter on; empty if it cannot be unpacked."""
    try:
        with open_bytes(path) as file:
            return file.read1(_BEGINNING_BYTES).removeprefix(BOM).lstrip()
    except PACKING_ERRORS:  # reading the whole file reports where
        return b""


def count_lines(path: Path) -> int:
    """Count the lines that `iterate_lines` yields, without blank ones at the end, which are not records."""
    count = 0  # line ends before the last byte that is not a white space
    blank = 0  # line ends after it
    begun = False
    with open_bytes(path) as file:
        try:
            while piece := file.read1(BYTES_PER_PIECE):
                filled = len(piece.rstrip())
                if filled:
                    count += blank + piece.count(b"\n", 0, filled)
                    blank = 0
                    begun = True
                blank += piece.count(b"\n", filled)
        except PACKING_ERRORS as error:
            raise make_broken_error(path, f"line {count}", error) from None
    return count + begun


def split_csv(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, columns) of each row of a CSV file; a row may span lines.

    Raises:
        UserError: quotes that do not end, columns beyond `LONGEST_LINE`, or an empty line that is not at the end.
    """
    numbered = iterate_lines(path)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=delimiter, strict=True)
    before = 0
    try:
        for row in reader:
            if not row:
                if is_end("", numbered):
                    return
                raise UserError(f"{path}:{before + 1}: an empty line; remove it")
            yield before + 1, row
            before = reader.line_num
    except csv.Error as error:
        where = f"{path}:{before + 1}: no valid CSV, {error}"
        raise UserError(
            f"{where}; a text with commas or line ends stands in quotes, quotes inside doubled"
        ) from None


def read_items(path: Path, deepest: int = DEEPEST_ITEM) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file: item n`, object) of a JSON array of objects, n from 1; only one object is in memory at a time.

    Args:
        deepest: how many brackets may be open at once in an item.
    Raises:
        UserError: not an array, invalid JSON, a member that is not an object, deep nesting, or a broken packed file.
    """
    import ijson  # planning does not need it

    number = 0
    with open_bytes(path) as file:
        try:
            start = file.read(_BEGINNING_BYTES).removeprefix(BOM)
            if not start.lstrip().startswith(b"["):
                raise UserError(
                    f"{path}: begins with {start[:20]!r}; a JSON array of objects is needed"
                )
            shallow = _Shallow(path, file, start, deepest)
            for number, record in enumerate(
                ijson.items(shallow, "item", use_float=True, buf_size=BYTES_PER_PIECE), start=1
            ):
                shallow.open = shallow.bytes = 0
                if not isinstance(record, dict):
                    raise UserError(
                        f"{path}: item {number}: a JSON {type(record).__name__}; an object is needed"
                    )
                yield f"{path}: item {number}", record
        except (ijson.JSONError, UnicodeDecodeError) as error:
            detail = error.args[0]  # bytes where the file's own are quoted
            why = (
                detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(error)
            ).partition("\n")[0]
            raise UserError(
                f"{path}: item {number + 1}: not valid JSON ({why}); mend it or fetch it again"
            ) from None
        except PACKING_ERRORS as error:
            raise make_broken_error(path, f"item {number}", error) from None


class _Shallow:
    """Reads a file, after the part of it that was read already, until an item is longer or deeper than allowed.

    `open` and `bytes` are set to 0 after each item. Brackets inside texts count too: the limits are far above what an
    item needs.
    """

    def __init__(self, path: Path, file: io.BufferedIOBase, start: bytes, deepest: int) -> None:
        self.path = path
        self.file = file
        self.start = start
        self.deepest = deepest
        self.open = self.bytes = 0

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; refuse items that are too long or nested too deep."""
        data, self.start = (
            (self.start[:size], self.start[size:]) if self.start else (self.file.read(size), b"")
        )
        self.open += data.count(b"[") + data.count(b"{") - data.count(b"]") - data.count(b"}")
        self.bytes += len(data)
        if self.bytes > LONGEST_LINE:
            raise UserError(
                f"{self.path}: an item longer than {LONGEST_LINE >> 20} MiB; an array of objects is needed"
            )
        if self.open > self.deepest:
            raise UserError(
                f"{self.path}: JSON nested deeper than {self.deepest} levels; an array of objects is needed"
            )
        return data


def read_texts(where: str, key: str, value: Any) -> list[str]:
    """Return a value that must be a list of texts, such as answers."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        shown = json.dumps(value, default=str, skipkeys=True)[:60]
        raise UserError(f"{where}: {key} is {shown}; a list of texts is needed")
    return [require_unicode(where, key, text) for text in value]


def read_objects(where: str, key: str, value: Any) -> list[JsonObject]:
    """Return a value that must be a list of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UserError(f"{where}: {key} is {json.dumps(value)[:60]}; a list of objects is needed")
    return value
