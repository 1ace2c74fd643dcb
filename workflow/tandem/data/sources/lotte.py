"""LoTTE (Santhanam et al. 2022): questions of two kinds over the answers of one domain and half, `writing/test` say.

    collection.tsv      passage id, text
    qas.search.jsonl    {"qid": 0, "query": "…", "answer_pids": [12, 40]}: what people searched for
    qas.forum.jsonl     the same: titles of threads

`questions.search.tsv` and `questions.forum.tsv` repeat the questions, and are not read.
"""

from collections.abc import Iterator

from tandem.config import datasets
from tandem.data.files import Files
from tandem.data.readers import count_records, reader
from tandem.data.reading import records, text_of
from tandem.data.roles import PASSAGES
from tandem.data.sources import DatasetJob, Judgement, Listing, Passage, Query, Source, dataset_format
from tandem.errors import UserError
from tandem.stages.base import Json

KINDS = ("search", "forum")  # of questions; each counts from 0
CORPUS, QUESTIONS = "collection.tsv", "qas.{}.jsonl"


@dataset_format("lotte")
class Lotte(Source):
    """The folder named by `path`; a question's id is its kind, which is its split, and its number: `search-0`."""

    def __init__(self, job: DatasetJob, entry: datasets.Lotte) -> None:
        super().__init__(job, entry)
        files = Files(job)
        self._corpus = files.find(CORPUS)
        paths = {kind: files.find_optional(QUESTIONS.format(kind)) for kind in KINDS}
        self._questions = {kind: path for kind, path in paths.items() if path}
        if not self._questions:
            raise UserError(f"{files.place}: holds neither qas.search.jsonl nor qas.forum.jsonl; put one of them there")
        self.places = {"corpus": str(self._corpus), "queries": "question"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        names = map(QUESTIONS.format, KINDS)
        return {} if listing.matching(CORPUS) and listing.matching(*names) else None

    def corpus(self) -> Iterator[Passage]:
        return self.corpus_from(0)

    def count(self) -> int | None:
        return count_records(self._corpus, PASSAGES)

    def corpus_from(self, row: int) -> Iterator[Passage]:
        for _, record in reader(self._corpus, PASSAGES)(self._corpus, PASSAGES, row):
            yield record["id"], record.get("title", ""), record["text"]

    def queries(self) -> Iterator[Query]:
        for kind, path in self._questions.items():
            for where, record in records(path):
                yield f"{kind}-{text_of(where, record, 'qid', number=True)}", text_of(where, record, "query"), kind

    def qrels(self) -> Iterator[Judgement]:
        """Every answer of a question is relevant to it."""
        for kind, path in self._questions.items():
            for where, record in records(path):
                answers = record.get("answer_pids")
                if not isinstance(answers, list):
                    raise UserError(f"{where}: answer_pids is {answers!r}; a list of passages' ids is needed")
                for number in range(len(answers)):
                    doc = text_of(where, {"answer_pids": answers[number]}, "answer_pids", number=True)
                    yield f"{kind}-{text_of(where, record, 'qid', number=True)}", doc, 1, kind
