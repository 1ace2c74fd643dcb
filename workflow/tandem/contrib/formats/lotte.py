"""LoTTE (Santhanam et al. 2022): questions of two kinds over the answers of one domain and half, `writing/test` say.

    collection.tsv      passage id, text
    qas.search.jsonl    {"qid": 0, "query": "…", "answer_pids": [12, 40]}: what people searched for
    qas.forum.jsonl     the same: titles of threads

`questions.search.tsv` and `questions.forum.tsv` repeat the questions, and are not read.
"""

from collections.abc import Iterator

from tandem.contrib.formats.options import Lotte
from tandem.contrib.formats.role_readers import choose_own_reader, count_records
from tandem.contrib.formats.roles import PASSAGES_ROLE
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import read_records, read_text
from tandem.data.sources import (
    DatasetJob,
    Judgement,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.errors import UserError
from tandem.stages.base import Json

_QUESTION_KINDS = ("search", "forum")  # the questions of each kind are numbered from 0
_CORPUS_FILE = "collection.tsv"
_QUESTIONS_FILE = "qas.{}.jsonl"


@dataset_format("lotte")
class LotteSource(Source):
    """Reads the folder named by `path`; a question's id is its kind, which is its split, and its number: `search-0`."""

    def __init__(self, job: DatasetJob, entry: Lotte) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._corpus = files.find(_CORPUS_FILE)
        paths = {
            kind: files.find_optional(_QUESTIONS_FILE.format(kind)) for kind in _QUESTION_KINDS
        }
        self._questions = {kind: path for kind, path in paths.items() if path}
        if not self._questions:
            raise UserError(
                f"{files.place}: holds neither qas.search.jsonl nor qas.forum.jsonl; put one of them there"
            )
        self.places = {"corpus": str(self._corpus), "queries": "question"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        names = map(_QUESTIONS_FILE.format, _QUESTION_KINDS)
        return {} if listing.matching(_CORPUS_FILE) and listing.matching(*names) else None

    def read_corpus(self) -> Iterator[Passage]:
        return self.read_corpus_from(0)

    def count(self) -> int | None:
        return count_records(self._corpus, PASSAGES_ROLE)

    def read_corpus_from(self, row: int) -> Iterator[Passage]:
        for _, record in choose_own_reader(self._corpus, PASSAGES_ROLE)(
            self._corpus, PASSAGES_ROLE, row
        ):
            yield record["id"], record.get("title", ""), record["text"]

    def read_queries(self) -> Iterator[Query]:
        """Yield the questions of each kind; the kind is their split, and the beginning of their ids."""
        for kind, path in self._questions.items():
            for where, record in read_records(path):
                yield (
                    f"{kind}-{read_text(where, record, 'qid', number=True)}",
                    read_text(where, record, "query"),
                    kind,
                )

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield every answer of a question as relevant to it."""
        for kind, path in self._questions.items():
            for where, record in read_records(path):
                answers = record.get("answer_pids")
                if not isinstance(answers, list):
                    raise UserError(
                        f"{where}: answer_pids is {answers!r}; a list of passages' ids is needed"
                    )
                for number in range(len(answers)):
                    doc = read_text(
                        where, {"answer_pids": answers[number]}, "answer_pids", number=True
                    )
                    yield f"{kind}-{read_text(where, record, 'qid', number=True)}", doc, 1, kind
