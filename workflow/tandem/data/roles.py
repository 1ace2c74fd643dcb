"""Files of passages, queries, judgements and answers: TSV, JSON lines, Parquet or TREC, by the end of their name.

Every reader gives (place, record): a record maps the fields of the file's role to what the file holds, unchecked. It
may pass over the first records, which takes less time than reading them.
"""

import html
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.data.reading import LONGEST, JsonObject, count_lines, describe_columns, lines, records
from tandem.errors import UserError

PARQUET_ROWS = 1024
BUFFER = 1 << 20  # bytes read ahead of a Parquet column; pre_buffer would keep all that was read, packed, to the end
DOC = re.compile(r"<(/?)DOC>", re.IGNORECASE)
DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.IGNORECASE | re.DOTALL)
TITLE = re.compile(r"<(TITLE|HEADLINE)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


@dataclass(frozen=True)
class Role:
    """The sort of records that a file holds, and the names of their fields.

    Attributes:
        fields: field → its possible names in JSON, Parquet or a header line; the first one present counts.
        columns: number of columns of a tab-separated line without a header → their fields; `-` is not read.
        line: description of such a line, for errors.
        optional: fields that may be missing.
        alone: whether these may be missing only where no other field stands, which may be meant.
        spaced: whether a line without tabs is separated by white space, as TREC's are.
    """

    fields: dict[str, tuple[str, ...]]
    columns: dict[int, tuple[str, ...]]
    line: str
    optional: frozenset[str] = frozenset()
    alone: bool = False
    spaced: bool = False

    def resolve(self, where: str, names: Collection[str]) -> dict[str, str]:
        """Field → its name among `names`, for those present; a `UserError` if a required field is missing."""
        resolved: dict[str, str] = {}
        most = len(self.fields) - len(self.optional)
        for field, allowed in self.fields.items():
            name = next((name for name in allowed if name in names), None)
            if name is not None:
                resolved[field] = name
            elif field not in self.optional or (self.alone and len(names) > most):
                raise UserError(f"{where}: no {field}; a field named {' or '.join(allowed)} is needed")
        return resolved


class Reader(Protocol):
    """What reads a file of some role."""

    def __call__(self, path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
        """(place, record) of the records but the first `skipped`."""


QUERY_IDS = ("_id", "id", "query_id", "query-id", "qid")
DOC_IDS = ("_id", "id", "doc_id", "docid", "pid", "docno", "document_id", "passage_id")
TEXTS = ("text", "contents", "content", "body", "passage", "passage_text")

PASSAGES = Role(
    fields={"id": DOC_IDS, "title": ("title",), "text": TEXTS},
    columns={2: ("id", "text"), 3: ("id", "title", "text")},
    line="id, text or id, title, text, by tabs",
    optional=frozenset({"title"}),
)
QUERIES = Role({"id": QUERY_IDS, "text": ("text", "query", "question")}, {2: ("id", "text")}, "id, text, by a tab")
QRELS = Role(
    fields={
        "query": ("query_id", "query-id", "qid"),
        "document": ("doc_id", "corpus-id", "corpus_id", "docid", "pid", "docno", "document_id", "passage_id"),
        "relevance": ("relevance", "score", "rel", "label"),
    },
    columns={
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "-", "document", "relevance"),
    },
    line="query id, 0, document id, relevance by white space, or query id, document id[, relevance] by tabs",
    optional=frozenset({"relevance"}),
    alone=True,
    spaced=True,
)
ANSWERS = Role({"id": QUERY_IDS, "answers": ("answers",)}, {}, "id, answer, …, by tabs")
ID_NAMES = {*DOC_IDS, *QUERY_IDS, *QRELS.fields["query"], *QRELS.fields["document"]}


def domains_role(names: tuple[str, str] | None) -> Role:
    """The role of a file with passages' domains, whose fields have two names; None: the usual ones."""
    document, domain = ((name, name.lower()) for name in names) if names else (DOC_IDS, ("domain",))
    return Role({"id": document, "domain": domain}, {2: ("id", "domain")}, "id, domain, by a tab")


def suffix_of(path: Path) -> str:
    """The end of a file's name, in lower case, without `.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def reader(path: Path, role: Role) -> Reader:
    """The reader of a file of some role; a `UserError` if no reader reads files with such a name."""
    separated = read_answers if role is ANSWERS else read_tsv
    readers: dict[str, Reader] = {
        ".jsonl": read_jsonl, ".parquet": read_parquet, ".tsv": separated, ".txt": separated,
    }  # fmt: skip
    if role is PASSAGES:
        readers |= {".trec": read_trec, ".xml": read_trec}
    suffix = suffix_of(path)
    if suffix not in readers and role is not QRELS:
        error = f"{path}: a file that ends in {suffix or 'nothing'}"
        raise UserError(f"{error}; allowed are {', '.join(readers)}, all but .parquet also .gz")
    return readers.get(suffix, separated)


def count_records(path: Path, role: Role) -> int | None:
    """How many records a file has; None where only reading it would tell."""
    suffix = suffix_of(path)
    if suffix == ".parquet":
        with suppress(pa.ArrowException, OSError):  # reading it says what is wrong
            return int(pq.read_metadata(path).num_rows)
    if suffix == ".jsonl":
        return count_lines(path)
    return count_lines(path) - (header(path, role) is not None) if suffix in (".tsv", ".txt") else None


def read_jsonl(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, field → value) of each line, one JSON object; other keys are ignored."""
    for where, record in records(path, skipped):
        yield where, {field: record[name] for field, name in role.resolve(where, record).items()}


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


def header(path: Path, role: Role) -> tuple[str, ...] | None:
    """The field of each column by the first line's names, `-` of none; None if that line is a record.

    A line that begins with the name of an id is none: a `UserError` if it lacks a needed field.
    """
    for _, line in lines(path):
        names = [name.strip().lower() for name in line.split("\t")]  # of two of a field the role's first counts
        own = {next((name for name in allowed if name in names), ""): field for field, allowed in role.fields.items()}
        known = tuple(own.get(name, "-") if names.index(name) == at else "-" for at, name in enumerate(names))
        if names[0] not in ID_NAMES and not role.fields.keys() - role.optional <= set(known):
            return None
        role.resolve(f"{path}:1", names)
        return known
    return None


def read_tsv(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, field → column) of each line; the header or the number of columns decides their order."""
    named = header(path, role)
    orders = {len(named): named} if named else role.columns
    name = str(path)
    for number, line in lines(path, skipped=skipped + (named is not None)):
        spaced = role.spaced and "\t" not in line
        columns = line.split() if spaced else line.split("\t")
        order = orders.get(len(columns))
        if order is None or (spaced and len(columns) != 4):
            by = "white space" if spaced else "tabs"
            needed = f"the header names {len(named)}" if named else f"a line is {role.line}"
            raise UserError(f"{path}:{number}: {describe_columns(columns, by)}; {needed}")
        yield f"{name}:{number}", dict(zip(order, columns, strict=True))


def read_answers(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line`, id and answers) of each line: an id and at least one answer, by tabs."""
    for number, line in lines(path, skipped=skipped):
        query, *answers = line.split("\t")
        if not answers:
            raise UserError(f"{path}:{number}: 1 column by tabs; a line is {role.line}")
        yield f"{path}:{number}", {"id": query, "answers": answers}


def read_trec(path: Path, role: Role, skipped: int = 0) -> Iterator[tuple[str, JsonObject]]:
    """(`file:line` of its <DOC>, id, title and text) of each document `<DOC> <DOCNO>id</DOCNO> … </DOC>` of TREC.

    The title is `<TITLE>` or `<HEADLINE>`, the text all of `<TEXT>`, or without one all but id and title. Tags inside
    and white space become one space, character references their characters. What is between documents is left out.
    """
    for start, raw in islice(_documents(path), skipped, None):
        where = f"{path}:{start}"
        docno, title, texts = DOCNO.search(raw), TITLE.search(raw), TEXT.findall(raw)
        if docno is None:
            raise UserError(f"{where}: document without <DOCNO>; give it one")
        text = _plain("\n".join(texts or [TITLE.sub(" ", DOCNO.sub(" ", raw))]))
        yield where, {"id": docno[1].strip(), "title": _plain(title[2]) if title else "", "text": text}


def _documents(path: Path) -> Iterator[tuple[int, str]]:
    """(line of its <DOC>, what stands up to its </DOC>) of each document."""
    start, size, parts = 0, 0, list[str]()
    for number, line in lines(path):
        at = 0
        for tag in DOC.finditer(line):
            closes = bool(tag[1])
            if closes and not start:
                raise UserError(f"{path}:{number}: </DOC> without <DOC>; a document is <DOC> … </DOC>")
            if not closes and start:
                raise UserError(f"{path}:{number}: <DOC> inside the document of line {start}; end that with </DOC>")
            if closes:
                yield start, "\n".join([*parts, line[at : tag.start()]])
            start, size, parts = (0 if closes else number), 0, []
            at = tag.end()
        if start:
            parts.append(line[at:])
            size += len(line) - at
            if size > LONGEST:
                raise UserError(f"{path}:{start}: a document beyond {LONGEST >> 20} MiB; end it with </DOC>")
    if start:
        where = f"{path}:{start}: no </DOC> up to the end of the file"
        raise UserError(f"{where}; end the document or fetch the file again")


def _plain(marked: str) -> str:
    return " ".join(html.unescape(TAG.sub(" ", marked)).split())
