"""Which columns of a file are read because of their names, and which are not."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from tandem.contrib.formats.readers import (
    FileReader,
    read_csv,
    read_csv_head,
    read_head,
    read_json,
    read_jsonl,
    read_parquet,
    read_tsv,
)
from tandem.contrib.formats.role_readers import choose_own_reader
from tandem.contrib.formats.roles import Role
from tandem.data.reading import JsonObject, iterate_lines, read_records
from tandem.extras.file_columns import FileColumns
from tandem.extras.records import read_beginning, read_items

RECORDS_READ = 100  # of JSON, whose objects may differ in their keys


def find_columns(files: Iterable[tuple[Path, Role]]) -> list[FileColumns]:
    """Return the columns of each file whose columns have names; columns known only by their number are not listed."""
    found: list[tuple[Path, FileColumns]] = []
    read_names: defaultdict[Path, set[str]] = defaultdict(set)
    for path, role in files:
        find_fields = _FINDERS.get(choose_own_reader(path, role))
        pairs = list(find_fields(path, role)) if find_fields else []
        if pairs:
            columns = _sort_columns(path, role, pairs)
            read_names[path].update(columns.fields.values())
            found.append((path, columns))
    # A column that one role does not read, another may: passages with their domains.
    return [
        replace(columns, unread=[name for name in columns.unread if name not in read_names[path]])
        for path, columns in found
    ]


def _sort_columns(path: Path, role: Role, pairs: Sequence[tuple[str, str]]) -> FileColumns:
    """Return a file's columns from pairs of a column's name and its field, which is `-` if the column is not read."""
    by_field = {field: name for name, field in pairs if field != "-"}
    return FileColumns(
        path.name,
        {field: by_field[field] for field in role.fields if field in by_field},
        [name for name, field in pairs if field == "-" and name.strip()],
        {
            field: allowed
            for field, allowed in role.fields.items()
            if field in role.optional and field not in by_field
        },
    )


def _find_in_tsv(path: Path, role: Role) -> Iterator[tuple[str, str]]:
    head = read_head(path, role)
    if head.columns:
        _, line = next(iterate_lines(path, skipped=head.lines - 1))
        names = role.columns_of(line.lstrip("# ") if line.startswith("#") else line)
        yield from zip(names, head.columns, strict=True)


def _find_in_csv(path: Path, role: Role) -> Iterator[tuple[str, str]]:
    head = read_csv_head(path, role)
    if head.columns:
        yield from zip(head.names, head.columns, strict=True)


def _find_in_parquet(path: Path, role: Role) -> Iterator[tuple[str, str]]:
    names = pq.read_schema(path).names
    fields = {name: field for field, name in role.resolve(str(path), names).items()}
    for name in names:
        yield name, fields.get(name, "-")


def _find_in_json(path: Path, role: Role) -> Iterator[tuple[str, str]]:
    """Yield (key, field) of the first records' keys that are read, or that hold something, then with `-` as field."""
    is_array = read_beginning(path).startswith(b"[")
    records: Iterator[tuple[str, JsonObject]] = read_items(path) if is_array else read_records(path)
    fields: dict[str, str] = {}
    for where, record in islice(records, RECORDS_READ):
        for field, name in role.resolve(where, record).items():
            fields[name] = field
        for name in list_filled_keys(record):
            fields.setdefault(name, "-")
    yield from fields.items()


def list_filled_keys(record: JsonObject) -> list[str]:
    """Return the keys of a record that hold something."""
    return [name for name, value in record.items() if value not in (None, "", [], {})]


_FINDERS: dict[FileReader, Callable[[Path, Role], Iterator[tuple[str, str]]]] = {
    read_jsonl: _find_in_json,
    read_json: _find_in_json,
    read_parquet: _find_in_parquet,
    read_csv: _find_in_csv,
    read_tsv: _find_in_tsv,
}
