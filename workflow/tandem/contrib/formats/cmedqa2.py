"""cMedQA v2.0 (github.com/zhangsheng93/cMedQA2): Chinese medical questions, and the answers to all as the corpus.

    question.csv            question_id, content
    answer.csv              ans_id, question_id, content
    train_candidates.txt    question_id, pos_ans_id, neg_ans_id
    dev_, test_candidates   question_id, ans_id, cnt, label

All are CSV with a header, plain or each in a zip archive of its name. Only the candidates of dev and test with label 1
are judgements: the others were drawn at random, and nobody read them.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tandem.contrib.formats.options import CMedQA2
from tandem.data.dataset_files import DatasetFiles
from tandem.data.reading import describe_columns, parse_label
from tandem.data.sources import (
    DatasetJob,
    Judgement,
    Listed,
    Listing,
    Passage,
    Query,
    Source,
    dataset_format,
)
from tandem.errors import UserError
from tandem.extras.records import split_csv
from tandem.stages.base import Json


@dataset_format("cmedqa2")
class CMedQa2Source(Source):
    """Reads the folder named by `path`; candidates of at least one split are needed."""

    def __init__(self, job: DatasetJob, entry: CMedQA2) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._questions = files.find("question.csv", "question.zip")
        self._answers = files.find("answer.csv", "answer.zip")
        names = {split: f"{split}_candidates" for split in ("train", "dev", "test")}
        self._candidates: dict[str, Path] = {}
        for split, name in names.items():
            path = files.find_optional(f"{name}.txt", f"{name}.zip")
            if path is not None:
                self._candidates[split] = path
        if not self._candidates:
            allowed = ", ".join(names.values())
            raise UserError(
                f"{files.folder}: holds no candidates; at least one of {allowed} is needed"
            )
        self.places = {"corpus": f"{self._answers} record", "queries": f"{self._questions} record"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return {} if listing.matching("question.*") and listing.matching("*_candidates.*") else None

    def read_corpus(self) -> Iterator[Passage]:
        for _, (doc, text) in _read_rows(self._answers, "ans_id", "content"):
            yield doc, "", text

    def read_queries(self) -> Iterator[Query]:
        """Yield (query id, text, "") of every question; the candidates that name it decide its split."""
        for _, (query, text) in _read_rows(self._questions, "question_id", "content"):
            yield query, text, ""

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the candidates with a label; those of train are taken from its training lists."""
        for split, path in self._candidates.items():
            if split == "train":
                for query, doc, is_positive, _ in self.read_lists():
                    if is_positive:
                        yield query, doc, 1, split
                continue
            for where, (query, doc, label) in _read_rows(path, "question_id", "ans_id", "label"):
                if parse_label(where, label):
                    yield query, doc, 1, split

    def read_lists(self) -> Iterator[Listed]:
        """Yield (query id, document id, label, None): a training question's distinct positives, then its negatives."""
        if "train" not in self._candidates:
            return
        rows = (
            row
            for _, row in _read_rows(
                self._candidates["train"], "question_id", "pos_ans_id", "neg_ans_id"
            )
        )
        for query, group in groupby(rows, key=itemgetter(0)):
            pairs = list(group)
            positives = dict.fromkeys(doc for _, doc, _ in pairs)
            negatives = dict.fromkeys(doc for _, _, doc in pairs if doc not in positives)
            yield from ((query, doc, 1, None) for doc in positives)
            yield from ((query, doc, 0, None) for doc in negatives)


def _read_rows(path: Path, *columns: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (`file:line`, the named columns) of each record of a CSV file with a header; a record may span lines."""
    rows = split_csv(path)
    _, names = next(rows, (1, []))
    missing = [name for name in columns if name not in names]
    if missing:
        raise UserError(
            f"{path}:1: no column {missing[0]}; the header must name {', '.join(columns)}"
        )
    at = [names.index(name) for name in columns]
    for number, row in rows:
        where = f"{path}:{number}"
        if len(row) != len(names):
            raise UserError(
                f"{where}: {describe_columns(row, 'commas')}; the header names {len(names)}"
            )
        yield where, [row[index] for index in at]
