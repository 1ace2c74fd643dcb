"""Files of one's own: in BEIR's layout, or named by their role and each read by the end of its name."""

import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from tandem.config import datasets
from tandem.config.datasets import QRELS_FILES, Dataset, WithDomains
from tandem.data.dataset_files import DatasetFiles, find_by_split
from tandem.data.readers import choose_reader, count_records, get_suffix, read_head, read_jsonl
from tandem.data.reading import JsonObject, count_lines, parse_whole, read_text, read_texts
from tandem.data.roles import (
    ANSWERS_ROLE,
    PASSAGES_ROLE,
    QRELS_ROLE,
    QUERIES_ROLE,
    Role,
    make_domains_role,
)
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Domain,
    Judgement,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.data.splits import SPLIT_WORDS, group_qrels, match_by_split, split_name
from tandem.data.trec import is_topics
from tandem.errors import UserError
from tandem.stages.base import Json

# BEIR's: a header decides the order of the columns, and need not be there.
_BEIR_QRELS = Role(
    QRELS_ROLE.fields, {3: QRELS_ROLE.columns[3]}, "query-id, corpus-id and a whole number, by tabs"
)
_ROLE_WORDS = {  # the first that has a word of a name decides
    "qrels": {"qrels", "qrel", "judgements", "judgments", "labels"},
    "answers": {"answers"},
    "queries": {"queries", "query", "questions", "topics"},
    "corpus": {"corpus", "collection", "passages", "documents", "docs"},
}
TEXT_ENDS = (".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".trec", ".xml")
_MTEB_QRELS = re.compile(r"(.*/)?default/[^/]+\.(parquet|jsonl)$")  # MTEB puts judgements there


class JudgedFiles(Source):
    """Read judgements from a file for each split."""

    judged: Role = QRELS_ROLE
    _qrels: dict[str, Path]
    _domains: tuple[Path, Role] | None = None  # the file that `domains` names

    def read_qrels(self) -> Iterator[Judgement]:
        return (judgement for _, judgement in self._judgements())

    def locate_judgement(self, query: str, document: str) -> str:
        places = [
            where for where, judgement in self._judgements() if judgement[:2] == (query, document)
        ]
        return places[-1]

    def _judgements(self) -> Iterator[tuple[str, Judgement]]:
        for split, path in self._qrels.items():
            for where, record in _read_filled(path, self.judged):
                query = read_text(where, record, "query", number=True)
                doc = read_text(where, record, "document", number=True)
                relevance = parse_whole(where, "relevance", str(record.get("relevance", 1)))
                yield where, (query, doc, relevance, split)

    def read_domains(self) -> Iterator[Domain]:
        """Yield the domain of each passage that the file of domains gives one."""
        if not self._domains:
            return
        path, role = self._domains
        for where, record in _read_filled(path, role):
            domain = read_text(where, record, "domain").strip()
            if domain:
                yield read_text(where, record, "id", number=True), domain

    def _find_domains(self, entry: WithDomains, files: DatasetFiles) -> None:
        if entry.domains:
            path = files.find(entry.domains)
            role = make_domains_role(entry.domain_fields)
            choose_reader(path, role)  # refuses a file of another name
            self._domains = path, role


class BeirQueries(JudgedFiles):
    """Read a folder in BEIR's layout without a corpus: queries.jsonl with answers.jsonl, qrels/<split>.tsv, or both."""

    judged = _BEIR_QRELS

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._queries = files.find("queries.jsonl")
        self._answers = files.find_optional("answers.jsonl")
        self._qrels = group_qrels(files.glob(QRELS_FILES, required=False))
        if not self._qrels and not self._answers:
            raise UserError(
                f"{files.place}: holds no qrels/<split>.tsv, packed or not; put it there"
            )
        self.places = {"queries": str(self._queries)}

    def read_corpus(self) -> Iterator[Passage]:
        yield from ()

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, "") of each line of queries.jsonl; its split is that of the qrels which name it."""
        for where, record in read_jsonl(self._queries, QUERIES_ROLE):
            yield read_text(where, record, "id", number=True), read_text(where, record, "text"), ""

    def read_answers(self) -> Iterator[Answers]:
        if not self._answers:
            return
        for where, record in read_jsonl(self._answers, ANSWERS_ROLE):
            yield _make_answers(where, record)


@dataset_format("beir")
class BeirSource(BeirQueries):
    """Read the folder named by `path`, with corpus.jsonl; any file may be packed, its fields as those of `files`."""

    def __init__(self, job: DatasetJob, entry: datasets.Beir) -> None:
        files = DatasetFiles(job)
        self._corpus = files.find("corpus.jsonl")
        super().__init__(job, entry)
        self._find_domains(entry, files)
        self.places["corpus"] = str(self._corpus)

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        texts = listing.matching("corpus.jsonl", "queries.jsonl")
        labels = listing.matching("qrels/*.tsv", "answers.jsonl")
        return {} if len(texts) == 2 and labels else None

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int:
        return count_lines(self._corpus)

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        return (
            _make_passage(where, record)
            for where, record in read_jsonl(self._corpus, PASSAGES_ROLE, row)
        )


@dataset_format("files")
class OwnFilesSource(JudgedFiles):
    """Read the files that `corpus`, `queries`, `qrels` and `answers` name, below `path`; `corpus` may be a pattern."""

    def __init__(self, job: DatasetJob, entry: datasets.Files) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        if entry.corpus is None:
            raise UserError("corpus: None; the file with the passages is needed")
        self._corpus = (
            files.glob(entry.corpus) if "*" in entry.corpus else [files.find(entry.corpus)]
        )
        # None where that takes reading the file
        self._count = cache(partial(count_records, role=PASSAGES_ROLE))
        self._by_split = find_by_split("queries", entry.queries, files)
        self._qrels = find_by_split("qrels", entry.qrels, files)
        self._answers = [files.find(entry.answers)] if entry.answers else []
        if not self._by_split:
            raise UserError(
                "queries: none; a file of at least one split is needed, as in queries: {test: test.tsv}"
            )
        # a file may hold the queries of several splits
        self._queries = list(dict.fromkeys(self._by_split.values()))
        qrels = list(self._qrels.values())
        for role, paths in (
            (PASSAGES_ROLE, self._corpus),
            (QUERIES_ROLE, self._queries),
            (QRELS_ROLE, qrels),
            (ANSWERS_ROLE, self._answers),
        ):
            for path in paths:
                choose_reader(path, role)
        self._find_domains(entry, files)
        self.places = {
            "corpus": _name_place(self._corpus, PASSAGES_ROLE),
            "queries": _name_place(self._queries, QUERIES_ROLE),
        }

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the keys by words in the files' names; None without passages or queries."""
        roles: dict[str, list[str]] = {role: [] for role in _ROLE_WORDS}
        for name in listing.names:
            role = _guess_role(listing, name)
            if role:
                roles[role].append(name)
        if not roles["qrels"] and not roles["answers"]:
            roles["qrels"] = [name for name in listing.names if _MTEB_QRELS.match(name)]

        corpus = roles["corpus"]
        queries = match_by_split(roles["queries"])
        qrels = match_by_split(roles["qrels"])
        if not corpus or not queries:
            return None
        qrels_words = set[str]().union(*map(split_name, roles["qrels"]))
        names_split = not qrels_words.isdisjoint(SPLIT_WORDS)
        if list(queries) == ["test"] or (names_split and len(queries) == 1):
            # They belong to the splits that judge them.
            queries = dict.fromkeys(qrels or queries, *queries.values())
        elif list(qrels) == ["test"]:
            qrels = dict.fromkeys(queries, qrels["test"])

        keys: Json = {
            "corpus": corpus[0] if len(corpus) == 1 else _make_pattern(listing, corpus),
            "queries": queries,
        }
        if qrels:
            keys["qrels"] = qrels
        if roles["answers"]:
            keys["answers"] = roles["answers"][0]
        return keys

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int | None:
        counts = [self._count(path) for path in self._corpus]
        return None if None in counts else sum(filter(None, counts))

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        """Yield the passages from a row on; files before it are not read. Only from 0 where `count` says None."""
        for path in self._corpus:
            if row:
                count = self._count(path) or 0
                if count <= row:
                    row -= count
                    continue
            read = choose_reader(path, PASSAGES_ROLE)
            for where, record in read(path, PASSAGES_ROLE, row):
                yield _make_passage(where, record)
            row = 0

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, split) of every record.

        A file named for several splits leaves the split to the qrels.
        """
        for path in self._queries:
            splits = [split for split, file in self._by_split.items() if file == path]
            split = splits[0] if len(splits) == 1 else ""
            for where, record in _read_filled(path, QUERIES_ROLE):
                text = read_text(where, record, "text")
                yield read_text(where, record, "id", number=True), text, split

    def read_answers(self) -> Iterator[Answers]:
        for path in self._answers:
            for where, record in _read_filled(path, ANSWERS_ROLE):
                yield _make_answers(where, record)


def _make_passage(where: str, record: JsonObject) -> Passage:
    """Return a record as a passage; `where` is its place, for errors."""
    title = read_text(where, record, "title") if record.get("title") else ""
    return read_text(where, record, "id", number=True), title, read_text(where, record, "text")


def _guess_role(listing: Listing, name: str) -> str:
    """Return the role that the words of a file's name tell; empty where it has none, or the file holds no texts."""
    words = set(split_name(name))
    role = next((role for role, own in _ROLE_WORDS.items() if own & words), "")
    if role in ("", "qrels"):
        return role
    path = listing.path(name)
    if role == "queries" and Path(name).suffix not in TEXT_ENDS and is_topics(path):
        return role
    return role if get_suffix(path) in TEXT_ENDS else ""


def _make_answers(where: str, record: JsonObject) -> Answers:
    answers = read_texts(where, "answers", record.get("answers"))
    return read_text(where, record, "id", number=True), answers


def _read_filled(path: Path, role: Role) -> Iterator[tuple[str, JsonObject]]:
    """Yield the records of a file; a `UserError` if it is empty.

    An empty file of a split would pass for a small one.
    """
    where = None
    for where, record in choose_reader(path, role)(path, role):
        yield where, record
    if where is None:
        raise UserError(f"{path}: empty; name a file with records, or leave this one out")


def _name_place(paths: list[Path], role: Role) -> str:
    """Return the name of a record in an error.

    A line of the file where it is one, else a record of it or of the folder.
    """
    first = paths[0]
    if len(paths) > 1:
        return f"{first.parent} ({len(paths)} files) record"
    separated = get_suffix(first) in (".tsv", ".txt")
    by_line = get_suffix(first) in (".jsonl", ".ndjson") or (
        separated and read_head(first, role).lines == 0
    )
    return str(first) if by_line else f"{first} record"


def _make_pattern(listing: Listing, names: list[str]) -> str:
    """Return a pattern that several files fit, and no others."""
    packed = listing.path(names[0]).name.removeprefix(Path(names[0]).name)
    pattern = re.sub(r"\d+", "*", names[0])
    if listing.matching(pattern) != names:
        what = f"--data: {names[0]} and {names[1]} are both taken for the passages"
        raise UserError(
            f"{what}; put parts of one corpus into a folder of their own, or name one file"
        )
    return pattern + packed
