"""Readers of files by their role: TSV, CSV, JSON or Parquet, by the suffix of the file's name.

Every reader yields (place, record). A record maps the fields of the file's role to the values in the file, unchecked. A
reader can skip the first records, which takes less time than reading them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.contrib.formats.roles import (
    QRELS_ROLE,
    Role,
    match_columns,
)
from tandem.data.reading import (
    PACKED_ENDS,
    JsonObject,
    describe_columns,
    is_end,
    iterate_lines,
    read_records,
)
from tandem.errors import UserError
from tandem.extras.records import (
    get_member_name,
    read_beginning,
    read_items,
    split_csv,
)

_ROWS_PER_BATCH = 1024
# bytes read ahead of a Parquet column; pre_buffer would keep everything read, still packed, until the end
_BUFFER_BYTES = 1 << 20
_TREC_COLUMNS = 4  # in a line of judgements separated by white space
_WHOLE_NUMBER = re.compile(r"-?\d+(\.0*)?")
# A header of unknown names is recognised by the rows below it, at least so many, which hold other things than names.
_ROWS_COMPARED = 100
_FEWEST_COMPARED = 3
_NAME = re.compile(r"[A-Za-z]+([_-][A-Za-z]+)*")
_LONGEST_NAME = 40  # characters


class FileReader(Protocol):
    """A reader of files of some role."""

    def __call__(
        self, path: Path, role: Role, skipped: int = 0
    ) -> Iterator[tuple[str, JsonObject]]:
        """Yield (place, record) of the records after the first `skipped`."""


def get_suffix(path: Path) -> str:
    """Return the suffix of a file's name, in lower case, without that of its packing."""
    return Path(get_member_name(path)).suffix.lower()


def choose_reader(
    path: Path, role: Role, further: Mapping[str, FileReader] | None = None
) -> FileReader:
    """Return the reader of a file of some role; a `UserError` if no reader reads files with such a name.

    Args:
        further: the role's own readers by suffix, which take precedence over the others.
    """
    readers: dict[str, FileReader] = {
        ".jsonl": read_jsonl,
        ".ndjson": read_jsonl,
        ".json": read_json,
        ".parquet": read_parquet,
        ".csv": read_csv,
        ".tsv": read_tsv,
        ".txt": read_tsv,
        **(further or {}),
    }
    suffix = get_suffix(path)
    if suffix not in readers and role is not QRELS_ROLE:
        error = f"{path}: a file that ends in {suffix or 'nothing'}"
        raise UserError(
            f"{error}; allowed are {', '.join(readers)}, all but .parquet also {', '.join(PACKED_ENDS)}"
        )
    return readers.get(suffix, read_tsv)


def read_jsonl(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line`, field → value) of each line, one JSON object; other keys are ignored."""
    return _name_fields(read_records(path, skipped), role)


def read_json(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Read a JSON array of objects, whose places are `file: item n`, or JSON lines, whatever the file's name."""
    if not read_beginning(path).startswith(b"["):
        return read_jsonl(path, role, skipped)
    return _name_fields(islice(read_items(path), skipped, None), role)


def _name_fields(
    records: Iterator[tuple[str, JsonObject]], role: Role
) -> Iterator[tuple[str, JsonObject]]:
    """Yield records in which fields have the role's names."""
    last = None
    names: dict[str, str] = {}
    for where, record in records:
        keys = tuple(record)
        if keys != last:  # keys are mostly the same as in the record before
            last = keys
            names = role.resolve(where, keys)
        yield where, {field: record[name] for field, name in names.items()}


def read_parquet(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file row n`, field → value) of each row, rows counted from 1; other columns are not read."""
    done = 0
    try:
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            fields = role.resolve(str(path), file.schema_arrow.names)
            names = list(fields.values())
            for name in names:
                if file.schema_arrow.get_field_index(name) < 0:
                    raise UserError(
                        f"{path}: several columns {name}; rename those that are not meant"
                    )

            # Whole row groups before the first row to read are skipped.
            groups = list(range(file.num_row_groups))
            while groups:
                rows = file.metadata.row_group(groups[0]).num_rows
                if done + rows > skipped:
                    break
                done += rows
                groups.pop(0)

            for batch in file.iter_batches(_ROWS_PER_BATCH, groups, names):
                passed = min(max(0, skipped - done), len(batch))
                columns = [batch[name][passed:].to_pylist() for name in names]
                for row, values in enumerate(zip(*columns, strict=True), start=done + passed + 1):
                    yield f"{path} row {row}", dict(zip(fields, values, strict=True))
                done += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 after row {done}, {error.reason}; write its texts as UTF-8"
        ) from None
    except (pa.ArrowException, OSError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(
            f"{path}: no readable Parquet after row {done} ({why}); write or fetch it again"
        ) from None


@dataclass(frozen=True)
class Head:
    """The part of a file above its records, if tabs or white space separate its columns.

    Attributes:
        columns: the field of each column by the header's names, `-` if not read; None without a header.
        lines: the number of lines above: a header, which may begin with `#`, and comments above judgements.
        width: the number of columns of the first record; 0 with a header, or without a record.
    """

    columns: tuple[str, ...] | None
    lines: int
    width: int = 0


def read_head(path: Path, role: Role) -> Head:
    """Read a file up to its first record; a `UserError` for a header that lacks a needed field."""
    number = 0
    has_comments = "document" in role.fields
    numbered = iterate_lines(path)
    for number, line in numbered:
        is_marked = line.startswith("#")
        names = role.columns_of(line.lstrip("# ") if is_marked else line)
        columns = match_columns(f"{path}:{number}", names or [""], role, is_marked)
        if columns:
            return Head(columns, number)
        is_comment = (
            is_marked and has_comments and (line[1:2].isspace() or not _is_judgement(line, role))
        )
        if not is_comment:
            below = [role.columns_of(other) for _, other in islice(numbered, _ROWS_COMPARED)]
            _refuse_unknown_names(f"{path}:{number}", names, below, role)
            return Head(None, number - 1, len(names))
    return Head(None, number)


def _refuse_unknown_names(where: str, names: list[str], below: list[list[str]], role: Role) -> None:
    """Refuse a first row that is a header whose names mean no field; it would be read as a record.

    It is one if all its cells are words, no two of them equal, and below at least two of them every cell has a digit,
    or every cell is a text.
    """
    below = [row for row in below if len(row) == len(names)]
    are_names = all(_NAME.fullmatch(name) and len(name) <= _LONGEST_NAME for name in names)
    if not are_names or len(set(names)) < len(names) or len(below) < _FEWEST_COMPARED:
        return
    differing = 0
    for cells in zip(*below, strict=True):
        differing += all(map(_has_digit, cells)) or all(map(_is_text, cells))
    known = {name.lower() for name in names}
    for field, allowed in role.fields.items():
        if differing > 1 and field not in role.optional and known.isdisjoint(allowed):
            problem = f"{', '.join(names)} look like the names of columns, and none means {field}"
            raise UserError(f"{where}: {problem}; allowed: {', '.join(allowed)}")


def _has_digit(cell: str) -> bool:
    return any(map(str.isdecimal, cell))


def _is_text(cell: str) -> bool:
    """Return whether a cell is more than a word."""
    return " " in cell.strip() or not cell.isascii() or len(cell) > _LONGEST_NAME


def _is_judgement(line: str, role: Role) -> bool:
    """Return whether a line has the columns of a judgement: the id of a query may begin with `#`."""
    columns = role.columns_of(line)
    order = role.columns.get(len(columns), ())
    if "relevance" not in order:
        return "document" in order and "\t" in line
    return _WHOLE_NUMBER.fullmatch(columns[order.index("relevance")]) is not None


def read_tsv(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line`, field → column) of each line; the header, or the number of columns, decides their order.

    All lines have as many columns as the first: another number would give the columns other meanings.
    """
    name = str(path)
    head = read_head(path, role)
    orders = {len(head.columns): head.columns} if head.columns else _fix_width(role, head.width)
    numbered = iterate_lines(path, skipped=skipped + head.lines)
    for number, line in numbered:
        by_space = role.spaced and "\t" not in line
        columns = line.split() if by_space else line.split("\t")
        order = orders.get(len(columns))
        lacks_columns = by_space and not head.columns and len(columns) != _TREC_COLUMNS
        if order is None or lacks_columns:
            if is_end(line, numbered):
                return
            by = "white space" if by_space else "tabs"
            needed = f"a line is {role.line}"
            if head.columns:
                needed = f"the header names {len(head.columns)}"
            elif len(columns) in role.columns and not lacks_columns:
                needed = f"the first line has {head.width}"
            raise UserError(f"{path}:{number}: {describe_columns(columns, by)}; {needed}")
        yield f"{name}:{number}", dict(zip(order, columns, strict=True))


def _fix_width(role: Role, width: int) -> dict[int, tuple[str, ...]]:
    """Return the order of a role's columns where the first record has `width` of them; all orders if none has."""
    order = role.columns.get(width)
    return {width: order} if order else role.columns


@dataclass(frozen=True)
class CsvHead:
    """The beginning of a CSV file, from its first row.

    Attributes:
        columns: the field of each column by the header's names, `-` if not read; None without a header.
        names: the header's names as they are in the file; empty without one.
        delimiter: a comma, or the semicolon if a header has it.
        width: the number of columns of the first row.
    """

    columns: tuple[str, ...] | None
    names: list[str]
    delimiter: str
    width: int


def read_csv_head(path: Path, role: Role) -> CsvHead:
    """Read the first rows of a CSV file; a `UserError` for a header that lacks a needed field."""
    first_line = next((line for _, line in iterate_lines(path)), "")
    names = [name.strip(' "') for name in first_line.split(";")]
    by_semicolons = len(names) > 1 and match_columns(f"{path}:1", names, role) is not None
    delimiter = ";" if by_semicolons else ","

    rows = [row for _, row in islice(split_csv(path, delimiter), 1 + _ROWS_COMPARED)]
    columns = match_columns(f"{path}:1", rows[0], role) if rows else None
    if rows and columns is None:
        _refuse_unknown_names(f"{path}:1", rows[0], rows[1:], role)
    width = len(rows[0]) if rows else 0
    return CsvHead(columns, rows[0] if columns else [], delimiter, width)


def read_csv(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line`, field → column) of each row of a CSV file; a row may span lines.

    The header's names, or the number of columns, which is the same in all rows, decide their order. Columns are
    separated by commas, or by semicolons if the header is.
    """
    head = read_csv_head(path, role)
    columns = head.columns
    by = "semicolons" if head.delimiter == ";" else "commas"
    orders = {len(columns): columns} if columns else _fix_width(role, head.width)
    for number, row in islice(split_csv(path, head.delimiter), skipped + bool(columns), None):
        order = orders.get(len(row))
        if order is None:
            allowed = " or ".join(map(str, role.columns))
            needed = f"without a header they are {allowed}"
            if columns:
                needed = f"the header names {len(columns)}"
            elif len(row) in role.columns:
                needed = f"the first row has {head.width}"
            raise UserError(f"{path}:{number}: {describe_columns(row, by)}; {needed}")
        yield f"{path}:{number}", dict(zip(order, row, strict=True))
