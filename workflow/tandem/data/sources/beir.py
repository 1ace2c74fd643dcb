"""A folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`, and perhaps `answers.jsonl`."""

from collections.abc import Iterator

from tandem.config.datasets import Dataset
from tandem.data.files import Files
from tandem.data.reading import lines, parse_whole, records, text_of, texts_of
from tandem.data.sources import Answers, DatasetJob, Judgement, Passage, Query, Source, dataset_format
from tandem.data.splits import order
from tandem.errors import UserError


class BeirQueries(Source):
    """A folder in BEIR's layout without a corpus: queries.jsonl with answers.jsonl, qrels/, or both."""

    def __init__(self, job: DatasetJob, entry: Dataset) -> None:
        super().__init__(job, entry)
        self.files = Files(job)
        self._queries, self._answers = self.files.find("queries.jsonl"), self.files.find_optional("answers.jsonl")
        paths = self.files.glob("qrels/*.tsv*", required=not self._answers)
        by_split = {path.name.split(".tsv")[0]: path for path in paths}
        self._qrels = {split: by_split[split] for split in sorted(by_split, key=order)}
        self.places = {"queries": str(self._queries)}

    def corpus(self) -> Iterator[Passage]:
        yield from ()

    def queries(self) -> Iterator[Query]:
        """(query id, text, "") of each line of queries.jsonl: the split is that of the qrels naming the query."""
        for where, record in records(self._queries):
            yield text_of(where, record, "_id", number=True), text_of(where, record, "text"), ""

    def qrels(self) -> Iterator[Judgement]:
        for split, path in self._qrels.items():
            for number, line in lines(path):
                columns = line.split("\t")
                if number == 1 and columns[-1] == "score":
                    continue
                where = f"{path}:{number}"
                if len(columns) != 3:
                    error = f"{where}: {line[:60]!r} is no judgement"
                    raise UserError(f"{error}; a line is query-id, corpus-id and a whole number, by tabs")
                yield columns[0], columns[1], parse_whole(where, "relevance", columns[2]), split

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

    def corpus(self) -> Iterator[Passage]:
        for where, record in records(self._corpus):
            title = text_of(where, record, "title") if record.get("title") else ""
            yield text_of(where, record, "_id", number=True), title, text_of(where, record, "text")
