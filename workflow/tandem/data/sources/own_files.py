"""Files of one's own: a corpus, queries and qrels by split, perhaps answers, each read by the end of its name."""

from collections.abc import Iterator
from pathlib import Path

from tandem.config import datasets
from tandem.data.files import Files, files_by_split
from tandem.data.listing import Listing, by_role
from tandem.data.reading import JsonObject, parse_whole, text_of, texts_of
from tandem.data.roles import ANSWERS, PASSAGES, QRELS, QUERIES, Role, count_records, header, reader, suffix_of
from tandem.data.sources import Answers, DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.errors import UserError
from tandem.stages.base import Json


class JudgedFiles(Source):
    """A source whose judgements are the records of a file for each split."""

    judged: Role = QRELS
    _qrels: dict[str, Path]

    def qrels(self) -> Iterator[Judgement]:
        return (judgement for _, judgement in self._judgements())

    def judged_at(self, query: str, document: str) -> str:
        return [where for where, judgement in self._judgements() if judgement[:2] == (query, document)][-1]

    def _judgements(self) -> Iterator[tuple[str, Judgement]]:
        for split, path in self._qrels.items():
            for where, record in _records(path, self.judged):
                query, doc = (text_of(where, record, field, number=True) for field in ("query", "document"))
                yield where, (query, doc, parse_whole(where, "relevance", str(record.get("relevance", 1))), split)


@dataset_format("files")
class OwnFiles(JudgedFiles):
    """The files that `corpus`, `queries`, `qrels` and `answers` name, below `path`; `corpus` may be a pattern (`*`)."""

    def __init__(self, job: DatasetJob, entry: datasets.Files) -> None:
        super().__init__(job, entry)
        files = Files(job)
        if entry.corpus is None:
            raise UserError("corpus: None; the file with the passages is needed")
        self._corpus = files.glob(entry.corpus) if "*" in entry.corpus else [files.find(entry.corpus)]
        self._counts: dict[Path, int | None] = {}
        self._by_split = files_by_split("queries", entry.queries, files)
        self._qrels = files_by_split("qrels", entry.qrels, files)
        self._answers = [files.find(entry.answers)] if entry.answers else []
        if not self._by_split:
            raise UserError("queries: none; a file of at least one split is needed, as in queries: {test: test.tsv}")
        self._queries = list(dict.fromkeys(self._by_split.values()))  # a file may hold the queries of several splits
        qrels = list(self._qrels.values())
        for role, paths in (PASSAGES, self._corpus), (QUERIES, self._queries), (QRELS, qrels), (ANSWERS, self._answers):
            for path in paths:
                reader(path, role)
        self.places = {"corpus": _place(self._corpus, PASSAGES), "queries": _place(self._queries, QUERIES)}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return by_role(listing)

    def corpus(self) -> Iterator[Passage]:
        return self.corpus_from(0)

    def count(self) -> int | None:
        counts = [self._count(path) for path in self._corpus]
        return None if None in counts else sum(filter(None, counts))

    def corpus_from(self, row: int) -> Iterator[Passage]:
        """The passages from a row on; files before it are not read. Only from 0 where `count` says None."""
        for path in self._corpus:
            if row and (count := self._count(path) or 0) <= row:
                row -= count
                continue
            for where, record in reader(path, PASSAGES)(path, PASSAGES, row):
                title = text_of(where, record, "title") if record.get("title") else ""
                yield text_of(where, record, "id", number=True), title, text_of(where, record, "text")
            row = 0

    def _count(self, path: Path) -> int | None:
        """The number of a file's passages, counted once; None where that takes reading them."""
        if path not in self._counts:
            self._counts[path] = count_records(path, PASSAGES)
        return self._counts[path]

    def queries(self) -> Iterator[Query]:
        """(query id, text, split) of every record; a file named for several splits leaves the split to the qrels."""
        for path in self._queries:
            splits = [split for split, file in self._by_split.items() if file == path]
            for where, record in _records(path, QUERIES):
                text = text_of(where, record, "text")
                yield text_of(where, record, "id", number=True), text, splits[0] if len(splits) == 1 else ""

    def answers(self) -> Iterator[Answers]:
        for path in self._answers:
            for where, record in _records(path, ANSWERS):
                answers = texts_of(where, "answers", record["answers"])
                yield text_of(where, record, "id", number=True), answers


def _records(path: Path, role: Role) -> Iterator[tuple[str, JsonObject]]:
    """The records of a file; a `UserError` if it is empty: an empty file of a split would pass for a small one."""
    where = None
    for where, record in reader(path, role)(path, role):
        yield where, record
    if where is None:
        raise UserError(f"{path}: empty; name a file with records, or leave this one out")


def _place(paths: list[Path], role: Role) -> str:
    """The name of a record in an error: a line of the file where it is one, else a record of it or of the folder."""
    first = paths[0]
    if len(paths) > 1:
        return f"{first.parent} ({len(paths)} files) record"
    separated = suffix_of(first) in (".tsv", ".txt")
    by_line = suffix_of(first) == ".jsonl" or (separated and header(first, role) is None)
    return str(first) if by_line else f"{first} record"
