"""Readers of passages, queries and answers by a file name's suffix, including TREC's markup and answers in columns."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.contrib.formats.readers import FileReader, choose_reader, get_suffix, read_head
from tandem.contrib.formats.roles import ANSWERS_ROLE, ID_NAMES, PASSAGES_ROLE, QUERIES_ROLE, Role
from tandem.contrib.formats.trec import is_topics, read_topics, read_trec
from tandem.data.reading import JsonObject, is_end, iterate_lines
from tandem.errors import UserError
from tandem.extras.recognition import TEXT_ENDS
from tandem.extras.records import count_lines, split_csv


def choose_own_reader(path: Path, role: Role) -> FileReader:
    """Return the reader of a file of some role; a `UserError` if no reader reads files with such a name."""
    further: dict[str, FileReader] = {}
    if role is PASSAGES_ROLE:
        further = {".trec": read_trec, ".xml": read_trec}
    elif role is ANSWERS_ROLE:
        further = {".csv": read_csv_answers, ".tsv": read_answers, ".txt": read_answers}
    elif role is QUERIES_ROLE:
        suffix = get_suffix(path)
        may_be_topics = suffix in (".txt", ".trec", ".xml") or suffix not in TEXT_ENDS
        if may_be_topics and is_topics(path):
            return read_topics
    return choose_reader(path, role, further)


def count_records(path: Path, role: Role) -> int | None:
    """Count a file's records; None if that requires reading the file."""
    suffix = get_suffix(path)
    if suffix == ".parquet":
        with suppress(pa.ArrowException, OSError):  # reading it reports the error
            return int(pq.read_metadata(path).num_rows)
    if suffix in (".jsonl", ".ndjson"):
        return count_lines(path)
    if suffix in (".tsv", ".txt"):
        return count_lines(path) - read_head(path, role).lines
    return None


def read_answers(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Yield (`file:line`, id and answers) of each line: an id and at least one answer, by tabs.

    A first line that begins with the name of an id is a header; `#` may stand before it.
    """
    numbered = iterate_lines(path)
    records = (
        (number, line)
        for number, line in numbered
        if number > 1 or not _names_id(line.partition("\t")[0])
    )
    for number, line in islice(records, skipped, None):
        query, *answers = line.split("\t")
        if not answers:
            if is_end(line, numbered):
                return
            raise UserError(f"{path}:{number}: 1 column by tabs; a line is {role.line}")
        yield f"{path}:{number}", {"id": query, "answers": answers}


def read_csv_answers(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """Read answers from a CSV file; a first row that begins with the name of an id, perhaps after `#`, is a header.

    Columns are separated by commas, or by semicolons if the header is.
    """
    first_line = next((line for _, line in iterate_lines(path)), "")
    name, semicolon, _ = first_line.partition(";")
    by_semicolons = bool(semicolon) and _names_id(name.strip(' "'))
    delimiter, by = (";", "semicolons") if by_semicolons else (",", "commas")
    rows = (
        (number, row)
        for number, row in split_csv(path, delimiter)
        if number > 1 or not _names_id(row[0])
    )
    for number, (query, *answers) in islice(rows, skipped, None):
        if not answers:
            raise UserError(f"{path}:{number}: 1 column by {by}; a row is an id and answers")
        yield f"{path}:{number}", {"id": query, "answers": answers}


def _names_id(name: str) -> bool:
    """Return whether a first cell is a header's: the name of an id, perhaps after `#`."""
    return name.lstrip("# ").lower() in ID_NAMES
