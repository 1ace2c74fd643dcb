"""A user's own files in BEIR's layout; files of judgements and domains are read by the suffixes of their names."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tandem.config.datasets import Dataset
from tandem.contrib.formats.named_columns import find_columns
from tandem.contrib.formats.options import QRELS_FILES, Beir, WithDomains
from tandem.contrib.formats.readers import FileReader, choose_reader, read_jsonl
from tandem.contrib.formats.roles import (
    ANSWERS_ROLE,
    PASSAGES_ROLE,
    QRELS_ROLE,
    QUERIES_ROLE,
    Role,
    make_domains_role,
)
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import JsonObject, parse_whole, read_text
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
from tandem.errors import UserError
from tandem.extras.file_columns import FileColumns
from tandem.extras.records import count_lines, read_texts
from tandem.extras.split_names import group_qrels
from tandem.stages.base import Json

# BEIR's judgements: a header decides the order of the columns, but is optional.
_BEIR_QRELS = Role(
    QRELS_ROLE.fields, {3: QRELS_ROLE.columns[3]}, "query-id, corpus-id and a whole number, by tabs"
)


class JudgedFiles(Source):
    """Reads judgements from a file per split."""

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
            for where, record in read_filled(path, self.judged):
                query = read_text(where, record, "query", number=True)
                doc = read_text(where, record, "document", number=True)
                relevance = parse_whole(where, "relevance", str(record.get("relevance", 1)))
                yield where, (query, doc, relevance, split)

    def read_domains(self) -> Iterator[Domain]:
        """Yield the domain of each passage that has one in the file of domains.

        Raises:
            UserError: no record has the field.
        """
        if not self._domains:
            return
        path, role = self._domains
        has_field = False
        for where, record in read_filled(path, role):
            has_field = has_field or "domain" in record
            if record.get("domain") is None:
                continue
            domain = read_text(where, record, "domain").strip()
            if domain:
                yield read_text(where, record, "id", number=True), domain
        if not has_field:
            allowed = " or ".join(role.fields["domain"])
            raise UserError(f"{path}: no domain; a field named {allowed} is needed")

    def list_columns(self) -> list[FileColumns]:
        """Return the named columns of each file, those that are read and those that are not; see `NamesColumns`."""
        # a file may hold the judgements of several splits
        judged = [(path, self.judged) for path in dict.fromkeys(self._qrels.values())]
        domains = [self._domains] if self._domains else []
        return find_columns([*self._list_texts(), *judged, *domains])

    @abstractmethod
    def _list_texts(self) -> list[tuple[Path, Role]]:
        """Return the files of passages, queries and answers, with their roles."""

    def _find_domains(self, entry: WithDomains, files: DatasetFiles) -> None:
        if entry.domains:
            path = files.find(entry.domains)
            role = make_domains_role(entry.domain_fields)
            choose_reader(path, role)  # refuses a file with an unknown suffix
            self._domains = path, role


class BeirQueries(JudgedFiles):
    """Reads a folder in BEIR's layout with no corpus: queries.jsonl with answers.jsonl, qrels/<split>.tsv, or both."""

    judged = _BEIR_QRELS

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._queries = files.find("queries.jsonl")
        self._answers = files.find_optional("answers.jsonl")
        self._qrels = group_qrels(files.glob(QRELS_FILES, required=False, twins=True))
        if not self._qrels and not self._answers:
            raise UserError(
                f"{files.place}: holds no qrels/<split>.tsv, packed or not; put it there"
            )
        self.places = {"queries": str(self._queries)}

    def read_corpus(self) -> Iterator[Passage]:
        yield from ()

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, "") of each line of queries.jsonl; the qrels that name it decide its split."""
        for where, record in read_jsonl(self._queries, QUERIES_ROLE):
            yield read_text(where, record, "id", number=True), read_text(where, record, "text"), ""

    def read_answers(self) -> Iterator[Answers]:
        if not self._answers:
            return
        yield from iterate_answers(read_jsonl(self._answers, ANSWERS_ROLE))

    def _list_texts(self) -> list[tuple[Path, Role]]:
        answers = [(self._answers, ANSWERS_ROLE)] if self._answers else []
        return [(self._queries, QUERIES_ROLE), *answers]


@dataset_format("beir")
class BeirSource(BeirQueries):
    """Reads the folder named by `path`, with corpus.jsonl; any file may be packed; its fields are those of `files`."""

    def __init__(self, job: DatasetJob, entry: Beir) -> None:
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
            make_passage(where, record)
            for where, record in read_jsonl(self._corpus, PASSAGES_ROLE, row)
        )

    def _list_texts(self) -> list[tuple[Path, Role]]:
        return [(self._corpus, PASSAGES_ROLE), *super()._list_texts()]


def make_passage(where: str, record: JsonObject) -> Passage:
    """Return a record as a passage; `where` is its place, for errors."""
    title = read_text(where, record, "title") if record.get("title") else ""
    return read_text(where, record, "id", number=True), title, read_text(where, record, "text")


def iterate_answers(records: Iterable[tuple[str, JsonObject]]) -> Iterator[Answers]:
    """Yield records as the answers of their queries.

    Args:
        records: each with its place, for errors.
    Raises:
        UserError: no list of texts, or a query that has answers already.
    """
    places: dict[str, str] = {}
    for where, record in records:
        answers = read_texts(where, "answers", record.get("answers"))
        query = read_text(where, record, "id", number=True)
        if query in places:
            again = f"{where}: query id {query!r} again, first at {places[query]}"
            raise UserError(f"{again}; every id must be unique")
        places[query] = where
        yield query, answers


def read_filled(
    path: Path, role: Role, choose: Callable[[Path, Role], FileReader] = choose_reader
) -> Iterator[tuple[str, JsonObject]]:
    """Yield the records of a file by the reader that `choose` returns; a `UserError` if there are none.

    An empty file of a split would otherwise pass for a small one.
    """
    where = None
    for where, record in choose(path, role)(path, role):
        yield where, record
    if where is None:
        raise UserError(f"{path}: empty; name a file with records, or leave this one out")
