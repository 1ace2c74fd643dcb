"""Files of one's own: a corpus, queries and qrels by split, perhaps answers, each TSV, JSON lines, Parquet or TREC."""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tandem.artifact import Job
from tandem.data.files import Files, files_by_split
from tandem.data.reading import LONGEST, lines, records, text_of, texts_of, whole
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.data.sources.own import jsonl, parquet, trec, tsv
from tandem.errors import UserError


# ---- tandem.data.sources.own_files
class OwnFiles(Source):
    """The files that `corpus`, `queries`, `qrels` and `answers` name, below `path`; `corpus` may be a pattern (`*`)."""

    PARAMS = frozenset({"corpus", "queries", "qrels", "answers"})

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files, params = Files(job), job.params
        if not isinstance(params.get("corpus"), str):
            raise UserError(f"corpus: {params.get('corpus')!r}; the file with the passages is needed")
        many = "*" in params["corpus"]
        self._corpus = files.glob(params["corpus"]) if many else [files.find(params["corpus"])]
        self._queries = files_by_split("queries", params.get("queries"), files)
        self._qrels = files_by_split("qrels", params.get("qrels"), files)
        self._answers = [files.find(params["answers"])] if params.get("answers") else []
        if not self._queries:
            raise UserError("queries: none; a file of at least one split is needed, as in queries: {test: test.tsv}")
        self._asked = list(dict.fromkeys(self._queries.values()))  # a file may hold the queries of several splits
        self._require_readable()
        self.places = {"corpus": _place(self._corpus, PASSAGES), "queries": _place(self._asked, QUERIES)}

    def _require_readable(self) -> None:
        """Refuse files whose names tell no format."""
        judged = list(self._qrels.values())
        for role, paths in (PASSAGES, self._corpus), (QUERIES, self._asked), (QRELS, judged), (ANSWERS, self._answers):
            for path in paths:
                reader(path, role)

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of every record; a missing title is empty."""
        for path in self._corpus:
            for where, record in reader(path, PASSAGES)(path, PASSAGES):
                title = text_of(where, record, "title") if record.get("title") else ""
                yield text_of(where, record, "id", number=True), title, text_of(where, record, "text")

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every record; a file named for several splits leaves the split to the qrels."""
        for path in self._asked:
            splits = [split for split, one in self._queries.items() if one == path]
            for where, record in _some(path, QUERIES):
                text = text_of(where, record, "text")
                yield text_of(where, record, "id", number=True), text, splits[0] if len(splits) == 1 else ""

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of every record; without a relevance it is 1."""
        for split, path in self._qrels.items():
            for where, record in _some(path, QRELS):
                query, doc = (text_of(where, record, field, number=True) for field in ("query", "document"))
                yield query, doc, whole(where, "relevance", str(record.get("relevance", 1))), split

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of every record."""
        for path in self._answers:
            for where, record in _some(path, ANSWERS):
                answers = texts_of(where, "answers", record["answers"])
                yield text_of(where, record, "id", number=True), answers


def _some(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a file, of which there must be some: an empty file of a split would pass for a small one."""
    where = None
    for where, record in reader(path, role)(path, role):
        yield where, record
    if where is None:
        raise UserError(f"{path}: empty; name a file with records, or leave this one out")


def _place(paths: list[Path], role: Role) -> str:
    """What to call a record in an error: a line of the file where it is one, else a record of it or of the folder."""
    first = paths[0]
    if len(paths) > 1:
        return f"{first.parent} ({len(paths)} files) record"
    separated = ending(first) in (".tsv", ".txt")
    by_line = ending(first) == ".jsonl" or (separated and tsv.header(first, role) is None)
    return str(first) if by_line else f"{first} record"


# ---- tandem.data.sources.own_files
@dataclass(frozen=True)
class Role:
    """What the records of a file are.

    Attributes:
        fields: field → names that it may carry in JSON, Parquet or a header line; the first one found is taken.
        optional: fields that may be missing.
        columns: number of columns of a tab-separated line without a header → the fields they are; `-` is not read.
        spaced: whether a line without tabs is separated by white space, as TREC's are.
        line: what such a line is, for errors.
    """

    fields: dict[str, tuple[str, ...]]
    optional: frozenset[str]
    columns: dict[int, tuple[str, ...]]
    line: str
    spaced: bool = False

    def field_of(self, name: str) -> str | None:
        """The field that goes by a name."""
        return next((field for field, names in self.fields.items() if name in names), None)

    def resolve(self, where: str, names: Any) -> dict[str, str]:
        """Field → the name it has here, for those there are.

        Args:
            where: the record's place, for the error.
            names: what can be asked with `in`: a record, or its keys.
        Raises:
            UserError: a field is missing that is not optional.
        """
        found = {}
        for field, allowed in self.fields.items():
            name = next((name for name in allowed if name in names), None)
            if name is not None:
                found[field] = name
            elif field not in self.optional:
                raise UserError(f"{where}: no {field}; a field named {' or '.join(allowed)} is needed")
        return found


QUERY_IDS = ("_id", "id", "query_id", "query-id", "qid")
DOC_IDS = ("_id", "id", "doc_id", "docid", "pid")

PASSAGES = Role(
    fields={"id": DOC_IDS, "title": ("title",), "text": ("text", "contents")},
    optional=frozenset({"title"}),
    columns={2: ("id", "text"), 3: ("id", "title", "text")},
    line="id, text or id, title, text, by tabs",
)
QUERIES = Role(
    fields={"id": QUERY_IDS, "text": ("text", "query")},
    optional=frozenset(),
    columns={2: ("id", "text")},
    line="id, text, by a tab",
)
QRELS = Role(
    fields={
        "query": ("query_id", "query-id", "qid"),
        "document": ("doc_id", "corpus-id", "corpus_id", "docid", "pid"),
        "relevance": ("relevance", "score"),
    },
    optional=frozenset({"relevance"}),
    columns={
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "-", "document", "relevance"),
    },
    line="query id, 0, document id, relevance by white space, or query id, document id[, relevance] by tabs",
    spaced=True,
)
ANSWERS = Role(
    fields={"id": QUERY_IDS, "answers": ("answers",)},
    optional=frozenset(),
    columns={},
    line="id, answer, …, by tabs",
)


# ---- tandem.data.sources.own_files
Reader = Callable[[Path, Role], Iterator[tuple[str, dict[str, Any]]]]


def ending(path: Path) -> str:
    """The end of a file's name without `.gz`: `.tsv` of `a.tsv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def reader(path: Path, role: Role) -> Reader:
    """The reader of a file of some role; a `UserError` if its name has an end that none reads."""
    separated = tsv.read_answers if role is ANSWERS else tsv.read
    readers: dict[str, Reader] = {".jsonl": jsonl.read, ".parquet": parquet.read, ".tsv": separated, ".txt": separated}
    if role is PASSAGES:
        readers |= {".trec": trec.read, ".xml": trec.read}
    found = readers.get(ending(path), separated if role is QRELS else None)
    if found is None:
        allowed = ", ".join(readers)
        raise UserError(
            f"{path}: a file that ends in {ending(path) or 'nothing'}; allowed are {allowed}, all but .parquet also .gz"
        )
    return found


# ---- tandem.data.sources.own_files
def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, field → value) of each line."""
    for where, record in records(path):
        yield where, {field: record[name] for field, name in role.resolve(where, record).items()}


# ---- tandem.data.sources.own_files
ROWS = 1024
BUFFER = 1 << 20  # bytes read ahead of a column; pre_buffer would keep all that was read, packed, to the end


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file row n`, field → value) of each row, rows counted from 1."""
    done = 0
    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = role.resolve(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(ROWS, columns=list(names.values())):
                columns = [batch[name].to_pylist() for name in names.values()]
                for row, values in enumerate(zip(*columns, strict=True), start=done + 1):
                    yield f"{path} row {row}", dict(zip(names, values, strict=True))
                done += len(batch)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 after row {done}, {error.reason}; write its texts as UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{path}: no readable Parquet after row {done} ({why}); write or fetch it again") from None


# ---- tandem.data.sources.own_files
def header(path: Path, role: Role) -> tuple[str, ...] | None:
    """The fields that the first line names; None where it is a record: a header holds nothing but names of fields."""
    for _, line in lines(path):
        fields = [role.field_of(name.strip().lower()) for name in line.split("\t")]
        known = tuple(field for field in fields if field is not None)
        needed = role.fields.keys() - role.optional
        return known if len(known) == len(fields) and needed <= set(known) else None
    return None


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, field → column) of each line, its order told by the header or by the number of columns."""
    named = header(path, role)
    orders = {len(named): named} if named else role.columns
    name = str(path)
    for number, line in lines(path):
        if number == 1 and named:
            continue
        spaced = role.spaced and "\t" not in line
        columns = line.split() if spaced else line.split("\t")
        order = orders.get(len(columns))
        if order is None or (spaced and len(columns) != 4):
            by = "white space" if spaced else "tabs"
            needed = f"the header names {len(named)}" if named else f"a line is {role.line}"
            raise UserError(f"{path}:{number}: {len(columns)} columns by {by}; {needed}")
        yield f"{name}:{number}", dict(zip(order, columns, strict=True))


def read_answers(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, id and answers) of each line: an id and at least one answer."""
    for number, line in lines(path):
        query, *answers = line.split("\t")
        if not answers:
            raise UserError(f"{path}:{number}: 1 column by tabs; a line is {role.line}")
        yield f"{path}:{number}", {"id": query, "answers": answers}


# ---- tandem.data.sources.own_files
DOC = re.compile(r"<(/?)DOC>", re.IGNORECASE)
DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.IGNORECASE | re.DOTALL)
TITLE = re.compile(r"<(TITLE|HEADLINE)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line` of its <DOC>, id, title and text) of each document; what stands between documents is left out."""
    for start, raw in _documents(path):
        yield f"{path}:{start}", _record(f"{path}:{start}", raw)


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
        raise UserError(
            f"{path}:{start}: no </DOC> up to the end of the file; end the document or fetch the file again"
        )


def _record(where: str, raw: str) -> dict[str, str]:
    """Id, title and text of what stands between <DOC> and </DOC>."""
    named = DOCNO.search(raw)
    if named is None:
        raise UserError(f"{where}: document without <DOCNO>; give it one")
    titled = TITLE.search(raw)
    texts = TEXT.findall(raw)
    if not texts:
        texts = [TITLE.sub(" ", DOCNO.sub(" ", raw))]
    return {"id": named[1].strip(), "title": _plain(titled[2]) if titled else "", "text": _plain("\n".join(texts))}


def _plain(marked: str) -> str:
    """Text without tags and character references."""
    return " ".join(html.unescape(TAG.sub(" ", marked)).split())
