"""The files of DPR and of what is built like it: passages as TSV, questions with answers as TSV or as a JSON array.

TSV columns may be quoted as in csv, quotes inside them doubled: DPR reads both kinds of TSV through Python's csv, and
so does this. But a record is one line: a quote left open is a mistake, where csv would go on reading.
"""

import ast
import csv
import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import ijson

from tandem.data.reading import BOM, lines, open_bytes, text_of, texts_of
from tandem.data.sources import Passage
from tandem.errors import UserError

DEEPEST = 500  # levels of nested JSON in an item; ijson's memory grows with their square, and a question has four


class Asked(NamedTuple):
    """A question: its place for errors, its text, its answers, and the JSON object it came from (empty for TSV)."""

    where: str
    text: str
    answers: list[str]
    record: dict[str, Any]


def passages(path: Path) -> Iterator[Passage]:
    """(id, title, text) of each line `id, text, title` of a file like psgs_w100.tsv, after its header.

    Double quotes at both ends of the text are dropped, as DPR's `CsvCtxSrc` does with what it indexes; the title keeps
    its own.
    """
    for number, line in lines(path):
        row = _columns(f"{path}:{number}", line, "id, text, title", 3)
        if number > 1 or row[0] != "id":
            yield row[0], row[2], row[1].strip('"')


def questions(path: Path) -> Iterator[Asked]:
    """Every question of a file, in order: a JSON array if it is named `.json` (or `.json.gz`), else `.qa.csv`."""
    if path.name.removesuffix(".gz").endswith(".json"):
        for where, record in items(path):
            answers = record.get("answers")
            yield Asked(where, text_of(where, record, "question"), texts_of(where, "answers", answers or []), record)
    else:
        for number, line in lines(path):
            where = f"{path}:{number}"
            text, answers = _columns(where, line, "question, list of answers", 2)
            yield Asked(where, text, texts_of(where, "answers", _literal(where, answers)), {})


def items(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file: item n`, object) of a JSON array of objects, n from 1; only one object is in memory at a time.

    Raises:
        UserError: no array, invalid JSON, a member that is no object, deep nesting, or a broken gzip or zip file.
    """
    number = 0
    with open_bytes(path) as file:
        try:
            start = file.read(1024)
            skip = len(BOM) if start.startswith(BOM) else 0
            if not start[skip:].lstrip().startswith(b"["):
                raise UserError(f"{path}: begins with {start[skip : skip + 20]!r}; a JSON array of objects is needed")
            file.seek(skip)
            shallow = _Shallow(path, file)
            for number, record in enumerate(ijson.items(shallow, "item", use_float=True), start=1):
                shallow.open = 0
                if not isinstance(record, dict):
                    raise UserError(f"{path}: item {number}: a JSON {type(record).__name__}; an object is needed")
                yield f"{path}: item {number}", record
        except (ijson.JSONError, UnicodeDecodeError) as error:
            told = error.args[0]  # bytes where the file's own are quoted
            why = (told.decode("utf-8", "replace") if isinstance(told, bytes) else str(error)).partition("\n")[0]
            raise UserError(f"{path}: item {number + 1}: not valid JSON ({why}); mend it or fetch it again") from None
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
            why = "truncated" if isinstance(error, EOFError) else f"broken ({error})"
            raise UserError(f"{path}: packed file is {why} after item {number}; fetch it again") from None


class _Shallow:
    """A file that is read until more brackets stand open than an item has; `open` is set to 0 after each item.

    Brackets inside texts count too, which is why the limit is far from what an item needs.
    """

    def __init__(self, path: Path, file: BufferedIOBase) -> None:
        self.path, self.file, self.open = path, file, 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self.file.read(size)
        self.open += data.count(b"[") + data.count(b"{") - data.count(b"]") - data.count(b"}")
        if self.open > DEEPEST:
            raise UserError(f"{self.path}: JSON nested deeper than {DEEPEST} levels; an array of objects is needed")
        return data


def _columns(where: str, line: str, what: str, count: int) -> list[str]:
    """The columns of a line by tabs, csv quoting undone."""
    row = line.split("\t")
    if '"' in line:
        # The empty second line is only read if a quote of the first is still open.
        reader = csv.reader((line, ""), delimiter="\t")
        try:
            row = next(reader)
        except csv.Error as error:
            raise UserError(f"{where}: {error}; quote columns as csv does") from None
        if reader.line_num > 1:
            raise UserError(f"{where}: a quoted column is not closed; a record is one line, with quotes doubled inside")
    if len(row) != count:
        raise UserError(f"{where}: {len(row)} columns by tabs; a line is {what}: {count} columns")
    return row


def _literal(where: str, column: str) -> Any:
    """The value of a Python literal; escapes that Python does not know (`\\s` of a pattern) stay as they are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(column.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UserError(f"{where}: the answers {column[:60]!r} are no list; write ['first', 'second']") from None
