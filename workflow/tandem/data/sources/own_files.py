"""Files of one's own: in BEIR's layout, or named by their role and each read by the end of its name."""

import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from tandem.config import datasets
from tandem.config.datasets import QRELS_FILES, Dataset, WithDomains
from tandem.data.files import Files, files_by_split
from tandem.data.readers import count_records, head, read_jsonl, reader, suffix_of
from tandem.data.reading import JsonObject, count_lines, parse_whole, text_of, texts_of
from tandem.data.roles import ANSWERS, PASSAGES, QRELS, QUERIES, Role, domains_role
from tandem.data.sources import Answers, DatasetJob, Domain, Judgement, Listing, Passage, Query, Source, dataset_format
from tandem.data.splits import SPLIT_WORDS, one_by_split, qrels_files, words_of
from tandem.data.trec import is_topics
from tandem.errors import UserError
from tandem.stages.base import Json

# BEIR's: a header decides the order of the columns, and need not be there.
JUDGEMENTS = Role(QRELS.fields, {3: QRELS.columns[3]}, "query-id, corpus-id and a whole number, by tabs")
ROLES = {  # the first that has a word of a name decides
    "qrels": {"qrels", "qrel", "judgements", "judgments", "labels"},
    "answers": {"answers"},
    "queries": {"queries", "query", "questions", "topics"},
    "corpus": {"corpus", "collection", "passages", "documents", "docs"},
}
TEXTS = (".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".trec", ".xml")
MTEB_QRELS = re.compile(r"(.*/)?default/[^/]+\.(parquet|jsonl)$")  # MTEB puts judgements there


class JudgedFiles(Source):
    """A source whose judgements are the records of a file for each split."""

    judged: Role = QRELS
    _qrels: dict[str, Path]
    _domains: tuple[Path, Role] | None = None  # the file that `domains` names

    def qrels(self) -> Iterator[Judgement]:
        return (judgement for _, judgement in self._judgements())

    def judged_at(self, query: str, document: str) -> str:
        return [where for where, judgement in self._judgements() if judgement[:2] == (query, document)][-1]

    def _judgements(self) -> Iterator[tuple[str, Judgement]]:
        for split, path in self._qrels.items():
            for where, record in _records(path, self.judged):
                query, doc = (text_of(where, record, field, number=True) for field in ("query", "document"))
                yield where, (query, doc, parse_whole(where, "relevance", str(record.get("relevance", 1))), split)

    def domains(self) -> Iterator[Domain]:
        for where, record in _records(*self._domains) if self._domains else ():
            if domain := text_of(where, record, "domain").strip():
                yield text_of(where, record, "id", number=True), domain

    def _find_domains(self, entry: WithDomains, files: Files) -> None:
        if entry.domains:
            self._domains = path, role = files.find(entry.domains), domains_role(entry.domain_fields)
            reader(path, role)  # or refuses the file's name


class BeirQueries(JudgedFiles):
    """A folder in BEIR's layout without a corpus: queries.jsonl with answers.jsonl, qrels/<split>.tsv, or both."""

    judged = JUDGEMENTS

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        files = Files(job)
        self._queries, self._answers = files.find("queries.jsonl"), files.find_optional("answers.jsonl")
        self._qrels = qrels_files(files.glob(QRELS_FILES, required=False))
        if not self._qrels and not self._answers:
            raise UserError(f"{files.place}: holds no qrels/<split>.tsv, packed or not; put it there")
        self.places = {"queries": str(self._queries)}

    def corpus(self) -> Iterator[Passage]:
        yield from ()

    def queries(self) -> Iterator[Query]:
        """(query id, text, "") of each line of queries.jsonl; its split is that of the qrels which name it."""
        for where, record in read_jsonl(self._queries, QUERIES):
            yield text_of(where, record, "id", number=True), text_of(where, record, "text"), ""

    def answers(self) -> Iterator[Answers]:
        for where, record in read_jsonl(self._answers, ANSWERS) if self._answers else ():
            yield _answers(where, record)


@dataset_format("beir")
class Beir(BeirQueries):
    """The folder named by `path`, with corpus.jsonl; any file may be packed, its fields as those of `files`."""

    def __init__(self, job: DatasetJob, entry: datasets.Beir) -> None:
        files = Files(job)
        self._corpus = files.find("corpus.jsonl")
        super().__init__(job, entry)
        self._find_domains(entry, files)
        self.places["corpus"] = str(self._corpus)

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        parts = ("corpus.jsonl", "queries.jsonl"), ("qrels/*.tsv", "answers.jsonl")
        return {} if len(listing.matching(*parts[0])) == 2 and listing.matching(*parts[1]) else None

    def corpus(self) -> Iterator[Passage]:
        return self.corpus_from(0)

    def count(self) -> int:
        return count_lines(self._corpus)

    def corpus_from(self, row: int) -> Iterator[Passage]:
        return (_passage(where, record) for where, record in read_jsonl(self._corpus, PASSAGES, row))


@dataset_format("files")
class OwnFiles(JudgedFiles):
    """The files that `corpus`, `queries`, `qrels` and `answers` name, below `path`; `corpus` may be a pattern (`*`)."""

    def __init__(self, job: DatasetJob, entry: datasets.Files) -> None:
        super().__init__(job, entry)
        files = Files(job)
        if entry.corpus is None:
            raise UserError("corpus: None; the file with the passages is needed")
        self._corpus = files.glob(entry.corpus) if "*" in entry.corpus else [files.find(entry.corpus)]
        self._count = cache(partial(count_records, role=PASSAGES))  # None where that takes reading the file
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
        self._find_domains(entry, files)
        self.places = {"corpus": _place(self._corpus, PASSAGES), "queries": _place(self._queries, QUERIES)}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """The keys by words in the files' names; None without passages or queries."""
        roles: dict[str, list[str]] = {role: [] for role in ROLES}
        for name in listing.names:
            words = set(words_of(name))
            role = next((role for role, own in ROLES.items() if own & words), "")
            holds_topics = role == "queries" and Path(name).suffix not in TEXTS and is_topics(listing.path(name))
            if role == "qrels" or holds_topics or (role and suffix_of(listing.path(name)) in TEXTS):
                roles[role].append(name)
        if not roles["qrels"] and not roles["answers"]:
            roles["qrels"] = [name for name in listing.names if MTEB_QRELS.match(name)]
        corpus, queries, qrels = roles["corpus"], one_by_split(roles["queries"]), one_by_split(roles["qrels"])
        if not corpus or not queries:
            return None
        by_name = any(word in SPLIT_WORDS for name in roles["qrels"] for word in words_of(name))
        if list(queries) == ["test"] or (by_name and len(queries) == 1):  # they belong to the splits that judge them
            queries = dict.fromkeys(qrels or queries, *queries.values())
        elif list(qrels) == ["test"]:
            qrels = dict.fromkeys(queries, qrels["test"])
        keys: Json = {"corpus": corpus[0] if len(corpus) == 1 else _pattern(listing, corpus), "queries": queries}
        keys |= {"qrels": qrels} if qrels else {}
        return keys | ({"answers": roles["answers"][0]} if roles["answers"] else {})

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
                yield _passage(where, record)
            row = 0

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
                yield _answers(where, record)


def _passage(where: str, record: JsonObject) -> Passage:
    """A record as a passage; `where` is its place, for errors."""
    title = text_of(where, record, "title") if record.get("title") else ""
    return text_of(where, record, "id", number=True), title, text_of(where, record, "text")


def _answers(where: str, record: JsonObject) -> Answers:
    answers = texts_of(where, "answers", record.get("answers"))
    return text_of(where, record, "id", number=True), answers


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
    by_line = suffix_of(first) in (".jsonl", ".ndjson") or (separated and head(first, role).lines == 0)
    return str(first) if by_line else f"{first} record"


def _pattern(listing: Listing, names: list[str]) -> str:
    """A pattern that several files fit, and no others."""
    packed = listing.path(names[0]).name.removeprefix(Path(names[0]).name)
    pattern = re.sub(r"\d+", "*", names[0])
    if listing.matching(pattern) != names:
        what = f"--data: {names[0]} and {names[1]} are both taken for the passages"
        raise UserError(f"{what}; put parts of one corpus into a folder of their own, or name one file")
    return pattern + packed
