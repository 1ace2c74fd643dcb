"""A folder in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv`, and perhaps `answers.jsonl`."""

from collections.abc import Iterator

from tandem.data.files import Files
from tandem.data.reading import lines, records, text_of, texts_of, whole
from tandem.data.select import order
from tandem.data.sources import Answers, Judgement, Passage, Query, Source
from tandem.errors import UserError
from tandem.store.job import Job


class Beir(Source):
    """The folder named by `path`; any file may be gzipped."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files = Files(job)
        self._corpus, self._queries = files.find("corpus.jsonl"), files.find("queries.jsonl")
        self._answers = files.maybe("answers.jsonl")
        found = {path.name.split(".tsv")[0]: path for path in files.glob("qrels/*.tsv*", needed=not self._answers)}
        self._qrels = {split: found[split] for split in sorted(found, key=order)}
        self.places = {"corpus": str(self._corpus), "queries": str(self._queries)}

    def corpus(self) -> Iterator[Passage]:
        """(document id, title, text) of each line of corpus.jsonl; a missing title is empty."""
        for where, record in records(self._corpus):
            title = text_of(where, record, "title") if record.get("title") else ""
            yield text_of(where, record, "_id", number=True), title, text_of(where, record, "text")

    def queries(self) -> Iterator[Query]:
        """(query id, text, "") of each line of queries.jsonl: the split is that of the qrels naming the query."""
        for where, record in records(self._queries):
            yield text_of(where, record, "_id", number=True), text_of(where, record, "text"), ""

    def qrels(self) -> Iterator[Judgement]:
        """(query id, document id, relevance, split) of each line of the qrels, header lines left out."""
        for split, path in self._qrels.items():
            for number, line in lines(path):
                columns = line.split("\t")
                if number == 1 and columns[-1] == "score":
                    continue
                where = f"{path}:{number}"
                if len(columns) != 3:
                    found = f"{where}: {line[:60]!r} is no judgement"
                    raise UserError(f"{found}; a line is query-id, corpus-id and a whole number, by tabs")
                yield columns[0], columns[1], whole(where, "relevance", columns[2]), split

    def answers(self) -> Iterator[Answers]:
        """(query id, answers) of each line of answers.jsonl, if there is one."""
        for where, record in records(self._answers) if self._answers else ():
            answers = texts_of(where, "answers", record.get("answers"))
            yield text_of(where, record, "_id", number=True), answers
