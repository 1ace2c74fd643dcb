"""A folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`, and perhaps `answers.jsonl`."""

from collections.abc import Iterator

from tandem.config.datasets import QRELS_FILES, Dataset
from tandem.data.files import Files
from tandem.data.listing import Listing
from tandem.data.reading import count_lines, records, text_of, texts_of
from tandem.data.roles import QRELS, Role
from tandem.data.sources import Answers, DatasetJob, Passage, Query, dataset_format
from tandem.data.sources.own_files import JudgedFiles
from tandem.data.splits import qrels_files
from tandem.errors import UserError
from tandem.stages.base import Json

# A header decides the order of the columns, and need not be there.
JUDGEMENTS = Role(QRELS.fields, {3: QRELS.columns[3]}, "query-id, corpus-id and a whole number, by tabs")


class BeirQueries(JudgedFiles):
    """A folder in BEIR's layout without a corpus: queries.jsonl with answers.jsonl, qrels/, or both."""

    judged = JUDGEMENTS

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        self.files = Files(job)
        self._queries, self._answers = self.files.find("queries.jsonl"), self.files.find_optional("answers.jsonl")
        self._qrels = qrels_files(self.files.glob(QRELS_FILES, required=False))
        if not self._qrels and not self._answers:
            raise UserError(f"{self.files.place}: holds no qrels/<split>.tsv (or .tsv.gz); put it there")
        self.places = {"queries": str(self._queries)}

    def corpus(self) -> Iterator[Passage]:
        yield from ()

    def queries(self) -> Iterator[Query]:
        """(query id, text, "") of each line of queries.jsonl: the split is that of the qrels naming the query."""
        for where, record in records(self._queries):
            yield text_of(where, record, "_id", number=True), text_of(where, record, "text"), ""

    def answers(self) -> Iterator[Answers]:
        for where, record in records(self._answers) if self._answers else ():
            answers = texts_of(where, "answers", record.get("answers"))
            yield text_of(where, record, "_id", number=True), answers


@dataset_format("beir")
class Beir(BeirQueries):
    """The folder named by `path`; any file may be gzipped."""

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        self._corpus = Files(job).find("corpus.jsonl")
        super().__init__(job, entry)
        self.places["corpus"] = str(self._corpus)

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        parts = ("corpus.jsonl", "queries.jsonl"), ("qrels/*", "answers.jsonl")
        return {} if len(listing.matching(*parts[0])) == 2 and listing.matching(*parts[1]) else None

    def corpus(self) -> Iterator[Passage]:
        return self.corpus_from(0)

    def count(self) -> int:
        return count_lines(self._corpus)

    def corpus_from(self, row: int) -> Iterator[Passage]:
        for where, record in records(self._corpus, row):
            title = text_of(where, record, "title") if record.get("title") else ""
            yield text_of(where, record, "_id", number=True), title, text_of(where, record, "text")
