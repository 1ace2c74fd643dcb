"""A user's own files, named by their role; the suffix of a file's name decides how it is read."""

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import chain
from pathlib import Path

from tandem.contrib.formats.files_of_splits import find_by_split
from tandem.contrib.formats.options import Files
from tandem.contrib.formats.own_files import JudgedFiles, iterate_answers, make_passage, read_filled
from tandem.contrib.formats.readers import get_suffix, read_head
from tandem.contrib.formats.role_readers import choose_own_reader, count_records
from tandem.contrib.formats.roles import (
    ANSWERS_ROLE,
    PASSAGES_ROLE,
    QRELS_ROLE,
    QUERIES_ROLE,
    Role,
)
from tandem.contrib.formats.trec import is_topics
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import read_text
from tandem.data.sources import (
    Answers,
    DatasetJob,
    Judgement,
    Listing,
    Passage,
    Query,
    dataset_format,
)
from tandem.errors import UserError
from tandem.extras.recognition import TEXT_ENDS
from tandem.extras.split_names import find_splits, match_by_split, split_name
from tandem.stages.base import Json

_ROLE_WORDS = {  # the first role that has a word of a name decides
    "qrels": {"qrels", "qrel", "judgements", "judgments", "labels"},
    "answers": {"answers"},
    "queries": {"queries", "query", "questions", "topics"},
    "corpus": {"corpus", "collection", "passages", "documents", "docs"},
}
_MTEB_QRELS = re.compile(r"(.*/)?default/[^/]+\.(parquet|jsonl)$")  # MTEB puts judgements there


@dataset_format("files")
class OwnFilesSource(JudgedFiles):
    """Reads the files that `corpus`, `queries`, `qrels` and `answers` name, below `path`; `corpus` may be a pattern."""

    def __init__(self, job: DatasetJob, entry: Files) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        if entry.corpus is None:
            raise UserError("corpus: None; the file with the passages is needed")
        self._corpus = (
            files.glob(entry.corpus) if "*" in entry.corpus else [files.find(entry.corpus)]
        )
        # None if counting requires reading the file
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
        qrels = [(path, QRELS_ROLE) for path in self._qrels.values()]
        for path, role in (*self._list_texts(), *qrels):
            choose_own_reader(path, role)
        self._find_domains(entry, files)
        self.places = {
            "corpus": _name_place(self._corpus, PASSAGES_ROLE),
            "queries": _name_place(self._queries, QUERIES_ROLE),
        }

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the keys that follow from words in the files' names; None without passages or queries."""
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
        names_split = any(map(find_splits, roles["qrels"]))
        if list(queries) == ["test"] or (names_split and len(queries) == 1):
            # The queries belong to the splits that judge them.
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
            keys["answers"], *others = roles["answers"]
            if others:
                both = f"{keys['answers']} and {others[0]} are both taken for the answers"
                raise UserError(f"--data: {both}; put all answers into one file")
        return keys

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int | None:
        counts = [self._count(path) for path in self._corpus]
        return None if None in counts else sum(filter(None, counts))

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        """Yield the passages from a row on; earlier files are not read. `row` must be 0 if `count` returns None."""
        for path in self._corpus:
            if row:
                count = self._count(path) or 0
                if count <= row:
                    row -= count
                    continue
            read = choose_own_reader(path, PASSAGES_ROLE)
            for where, record in read(path, PASSAGES_ROLE, row):
                yield make_passage(where, record)
            row = 0

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, split) of every record.

        The qrels decide the split of queries in a file that is named for several splits.
        """
        for path in self._queries:
            splits = [split for split, file in self._by_split.items() if file == path]
            split = splits[0] if len(splits) == 1 else ""
            for where, record in read_filled(path, QUERIES_ROLE, choose_own_reader):
                text = read_text(where, record, "text")
                yield read_text(where, record, "id", number=True), text, split

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield every judgement; a file that is named for several splits judges a query in the split of its file."""
        sharing: dict[Path, list[str]] = {}
        for split, path in self._qrels.items():
            sharing.setdefault(path, []).append(split)
        if len(sharing) == len(self._qrels):
            yield from super().read_qrels()
            return
        asked = {query: split for query, _, split in self.read_queries()}
        for query, doc, relevance, split in super().read_qrels():
            splits = sharing[self._qrels[split]]
            own = asked.get(query)
            # For an unknown query, or one of another split, the first split counts. "" is a split that qrels decide.
            if own == "" or split == (own if own in splits else splits[0]):
                yield query, doc, relevance, split

    def read_answers(self) -> Iterator[Answers]:
        files = (read_filled(path, ANSWERS_ROLE, choose_own_reader) for path in self._answers)
        yield from iterate_answers(chain.from_iterable(files))

    def _list_texts(self) -> list[tuple[Path, Role]]:
        by_role = (
            (PASSAGES_ROLE, self._corpus),
            (QUERIES_ROLE, self._queries),
            (ANSWERS_ROLE, self._answers),
        )
        return [(path, role) for role, paths in by_role for path in paths]


def _guess_role(listing: Listing, name: str) -> str:
    """Return the role that the words of a file's name mean; empty if they mean none, or the file holds no texts."""
    words = set(split_name(name))
    role = next((role for role, own in _ROLE_WORDS.items() if own & words), "")
    if role in ("", "qrels"):
        return role
    path = listing.path(name)
    if role == "queries" and Path(name).suffix not in TEXT_ENDS and is_topics(path):
        return role
    return role if get_suffix(path) in TEXT_ENDS else ""


def _name_place(paths: list[Path], role: Role) -> str:
    """Return the name of a record in an error.

    A line of the file if a record is one, else a record of the file or of the folder.
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
    """Return a pattern that matches these names, and no others."""
    pattern = re.sub(r"\d+", "*", names[0])
    if listing.matching(pattern) != names:
        what = f"--data: {names[0]} and {names[1]} are both taken for the passages"
        raise UserError(
            f"{what}; put parts of one corpus into a folder of their own, or name one file"
        )
    return pattern
