"""Readers of files by their role: TSV, CSV, JSON, Parquet or TREC, by the end of their name.

Every reader gives (place, record): a record maps the fields of the file's role to what the file holds, unchecked. It
may pass over the first records, which takes less time than reading them.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.data.reading import (
    PACKED,
    JsonObject,
    beginning,
    count_lines,
    csv_rows,
    describe_columns,
    is_end,
    items,
    lines,
    member_name,
    records,
)
from tandem.data.roles import ANSWERS, ID_NAMES, PASSAGES, QRELS, QUERIES, Role, named_columns
from tandem.data.trec import is_topics, read_topics, read_trec
from tandem.errors import UserError

PARQUET_ROWS = 1024
BUFFER = 1 << 20  # bytes read ahead of a Parquet column; pre_buffer would keep all that was read, packed, to the end
TREC_COLUMNS = 4  # of a line of judgements by white space
WHOLE = re.compile(r"-?\d+(\.0*)?")


class Reader(Protocol):
    """What reads a file of some role."""

    def __call__(self, path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
        """(place, record) of the records but the first `skipped`."""


def suffix_of(path: Path) -> str:
    """The end of a file's name, in lower case, whatever it is packed in."""
    return Path(member_name(path)).suffix.lower()


def reader(path: Path, role: Role) -> Reader:
    """The reader of a file of some role; a `UserError` if no reader reads files with such a name."""
    separated, by_commas = (read_answers, read_csv_answers) if role is ANSWERS else (read_tsv, read_csv)
    readers: dict[str, Reader] = {
        ".jsonl": read_jsonl, ".ndjson": read_jsonl, ".json": read_json, ".parquet": read_parquet, ".csv": by_commas,
        ".tsv": separated, ".txt": separated,
    }  # fmt: skip
    if role is PASSAGES:
        readers |= {".trec": read_trec, ".xml": read_trec}
    suffix = suffix_of(path)
    if role is QUERIES and (suffix == ".txt" or suffix not in readers) and is_topics(path):
        return read_topics
    if suffix not in readers and role is not QRELS:
        error = f"{path}: a file that ends in {suffix or 'nothing'}"
        raise UserError(f"{error}; allowed are {', '.join(readers)}, all but .parquet also {', '.join(PACKED)}")
    return readers.get(suffix, separated)


def count_records(path: Path, role: Role) -> int | None:
    """How many records a file has; None where only reading it would tell."""
    suffix = suffix_of(path)
    if suffix == ".parquet":
        with suppress(pa.ArrowException, OSError):  # reading it says what is wrong
            return int(pq.read_metadata(path).num_rows)
    if suffix in (".jsonl", ".ndjson"):
        return count_lines(path)
    return count_lines(path) - head(path, role).lines if suffix in (".tsv", ".txt") else None


def read_jsonl(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, field → value) of each line, one JSON object; other keys are ignored."""
    return _named(records(path, skipped), role)


def read_json(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """`read_jsonl` of a JSON array of objects, where the place is `file: item n`; or of lines, whatever its name."""
    is_array = beginning(path).startswith(b"[")
    return _named(islice(items(path), skipped, None), role) if is_array else read_jsonl(path, role, skipped)


def _named(found: Iterator[tuple[str, JsonObject]], role: Role) -> Iterator[tuple[str, JsonObject]]:
    """Records with the role's names for their fields."""
    last, names = None, dict[str, str]()
    for where, record in found:
        if (keys := tuple(record)) != last:  # which mostly are those of the record before
            last, names = keys, role.resolve(where, keys)
        yield where, {field: record[name] for field, name in names.items()}


def read_parquet(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file row n`, field → value) of each row, rows counted from 1; other columns are not read."""
    done = 0
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = role.resolve(str(path), file.schema_arrow.names)
            if several := [name for name in names.values() if file.schema_arrow.get_field_index(name) < 0]:
                raise UserError(f"{path}: several columns {several[0]}; rename those that are not meant")
            groups = list(range(file.num_row_groups))
            while groups and done + (rows := file.metadata.row_group(groups[0]).num_rows) <= skipped:
                done += rows
                groups.pop(0)
            for batch in file.iter_batches(PARQUET_ROWS, groups, list(names.values())):
                passed = min(max(0, skipped - done), len(batch))
                columns = [batch[name][passed:].to_pylist() for name in names.values()]
                for row, values in enumerate(zip(*columns, strict=True), start=done + passed + 1):
                    yield f"{path} row {row}", dict(zip(names, values, strict=True))
                done += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 after row {done}, {error.reason}; write its texts as UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{path}: no readable Parquet after row {done} ({why}); write or fetch it again") from None


@dataclass(frozen=True)
class Head:
    """What stands above the records of a file that tabs or white space separate.

    Attributes:
        columns: the field of each column by the header's names, `-` of none; None without a header.
        lines: the number of its lines: the header, which may begin with `#`, and comments above judgements.
    """

    columns: tuple[str, ...] | None
    lines: int


def head(path: Path, role: Role) -> Head:
    """Read a file up to its first record; a `UserError` for a header that lacks a needed field."""
    number = 0
    for number, line in lines(path):
        marked = line.startswith("#")
        names = role.columns_of(line.lstrip("# ") if marked else line)
        if columns := named_columns(f"{path}:{number}", names or [""], role, marked):
            return Head(columns, number)
        is_comment = marked and "document" in role.fields and (line[1:2].isspace() or not _is_judgement(line, role))
        if not is_comment:
            return Head(None, number - 1)
    return Head(None, number)


def _is_judgement(line: str, role: Role) -> bool:
    """Whether a line has the columns of a judgement: a query's id may begin with `#`."""
    columns = role.columns_of(line)
    order = role.columns.get(len(columns), ())
    if "relevance" not in order:
        return "document" in order and "\t" in line
    return WHOLE.fullmatch(columns[order.index("relevance")]) is not None


def read_tsv(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, field → column) of each line; the header or the number of columns decides their order."""
    top = head(path, role)
    orders = {len(top.columns): top.columns} if top.columns else role.columns
    name, numbered = str(path), lines(path, skipped=skipped + top.lines)
    for number, line in numbered:
        spaced = role.spaced and "\t" not in line
        columns = line.split() if spaced else line.split("\t")
        order = orders.get(len(columns))
        if order is None or (spaced and not top.columns and len(columns) != TREC_COLUMNS):
            if is_end(line, numbered):
                return
            by = "white space" if spaced else "tabs"
            needed = f"the header names {len(top.columns)}" if top.columns else f"a line is {role.line}"
            raise UserError(f"{path}:{number}: {describe_columns(columns, by)}; {needed}")
        yield f"{name}:{number}", dict(zip(order, columns, strict=True))


def read_csv(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, field → column) of each row of a CSV file; a row may span lines.

    The header's names or the number of columns decide their order. Commas separate columns, or the semicolons of a
    header.
    """
    first = next((line for _, line in lines(path)), "")
    names = [name.strip(' "') for name in first.split(";")]
    by_semicolons = len(names) > 1 and named_columns(f"{path}:1", names, role) is not None
    delimiter, by = (";", "semicolons") if by_semicolons else (",", "commas")
    columns = next((named_columns(f"{path}:1", row or [""], role) for _, row in csv_rows(path, delimiter)), None)
    orders = {len(columns): columns} if columns else role.columns
    for number, row in islice(csv_rows(path, delimiter), skipped + bool(columns), None):
        order = orders.get(len(row))
        if order is None:
            allowed = " or ".join(map(str, orders))
            needed = f"the header names {allowed}" if columns else f"without a header they are {allowed}"
            raise UserError(f"{path}:{number}: {describe_columns(row, by)}; {needed}")
        yield f"{path}:{number}", dict(zip(order, row, strict=True))


def read_answers(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, id and answers) of each line: an id and at least one answer, by tabs."""
    numbered = lines(path, skipped=skipped)
    for number, line in numbered:
        query, *answers = line.split("\t")
        if not answers:
            if is_end(line, numbered):
                return
            raise UserError(f"{path}:{number}: 1 column by tabs; a line is {role.line}")
        yield f"{path}:{number}", {"id": query, "answers": answers}


def read_csv_answers(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """`read_answers` of a CSV file, by commas; a row that begins with the name of an id is its header."""
    rows = (row for row in csv_rows(path) if row[1] and row[1][0].lower() not in ID_NAMES)
    for number, (query, *answers) in islice(rows, skipped, None):
        if not answers:
            raise UserError(f"{path}:{number}: 1 column by commas; a row is an id and answers")
        yield f"{path}:{number}", {"id": query, "answers": answers}
