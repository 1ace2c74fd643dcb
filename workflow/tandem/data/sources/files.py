"""Files of one's own: a corpus, queries and qrels by split, perhaps answers, each TSV, JSON lines, Parquet or TREC."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.files import Files
from tandem.data.reading import text_of, texts_of, whole
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.data.sources.own import tsv
from tandem.data.sources.own.formats import ending, reader
from tandem.data.sources.own.roles import ANSWERS, PASSAGES, QRELS, QUERIES, Role
from tandem.data.sources.splits import files_by_split
from tandem.errors import UserError
from tandem.store.job import Job


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
