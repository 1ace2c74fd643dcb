"""The released package of DuReader-retrieval: 8.1 million Chinese passages, training texts, labelled dev queries.

    passage-collection/part-*                one passage a line, in four columns: `-`, title or `-`, text, 0
    passage-collection/passage2id.map.json   line number over all parts, from 0 → passage id
    dev/dev.json                             a query a line, with its positive passages
    train/dual.train.tsv, cross.train.tsv    labelled pairs of texts, without ids

`dev/q2qid.dev.json` and `dev.q.format` repeat what dev.json says. The labels of the test set were never published.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.cluster.progress import Progress
from tandem.data.files import Files
from tandem.data.reading import fields, records, text_of
from tandem.data.sources import Judgement, Listed, Passage, Query, Source
from tandem.data.sources.dureader_retrieval.ids import each, read_ids
from tandem.data.sources.dureader_retrieval.lookup import find_rows, mark
from tandem.data.sources.dureader_retrieval.training import Pairs, Training, training_id
from tandem.data.sources.rocketqa import title_of
from tandem.errors import UserError
from tandem.store.job import Job

COLLECTION = "passage-collection"


class DureaderRetrieval(Source):
    """The folder named by `path`, as the package unpacks; training files may be missing, both or one.

    A training passage is known by its text and found in the collection by it; what is not found is counted and left
    out. Training queries are named by a hash of their text.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        files = Files(job)
        self._parts = files.glob(f"{COLLECTION}/part-*")
        self._map = files.find(f"{COLLECTION}/passage2id.map.json")
        self._dev = files.find("dev/dev.json")
        self._dual, self._cross = files.maybe("train/dual.train.tsv"), files.maybe("train/cross.train.tsv")
        self.places = {"corpus": f"{self._parts[0].parent}/part-*", "queries": str(self._dev)}
        self._read: tuple[pa.ChunkedArray, list[str], Pairs] | None = None

    def corpus(self) -> Iterator[Passage]:
        """(passage id, title, text) of each line of the parts."""
        ids, _, _ = self._found()
        for doc_id, (title, text) in zip(each(ids), self._lines(), strict=True):
            yield doc_id, title, text

    def queries(self) -> Iterator[Query]:
        """(query id, text, split): dev queries, then training queries, which are kept if a positive was found."""
        for where, record in records(self._dev):
            yield _question_id(where, record), text_of(where, record, "question"), "dev"
        for query in self._found()[1]:
            yield training_id(query), query, ""

    def qrels(self) -> Iterator[Judgement]:
        """(query id, passage id, 1, split): the labelled passages of dev, and the positives of both training files."""
        yield from ((query, doc, 1, "dev") for query, doc, _ in self._labelled())
        yield from ((query, doc, 1, "train") for query, doc, label, _ in self.lists() if label)

    def lists(self) -> Iterator[Listed]:
        """(query id, passage id, label, None) of both training files, each pair once."""
        ids, queries, (asked, rows, labels) = self._found()
        names = [training_id(query) for query in queries]
        docs = ids.take(pa.array(rows)).to_pylist()
        for number, doc, label in zip(asked.tolist(), docs, labels.tolist(), strict=True):
            yield names[number], doc, label, None

    def _labelled(self) -> Iterator[tuple[str, str, str]]:
        """(query id, passage id, text) of each labelled passage of dev.json; the text is empty if it is not told."""
        for where, record in records(self._dev):
            query, told = _question_id(where, record), record.get("answer_paragraphs")
            if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
                raise UserError(f"{where}: answer_paragraphs is no list of objects; each has paragraph_id and its text")
            for one in told:
                text = text_of(where, one, "paragraph_text") if "paragraph_text" in one else ""
                yield query, text_of(where, one, "paragraph_id", number=True), text

    def _lines(self) -> Iterator[tuple[str, str]]:
        """(title, text) of each line of all parts; a line may be the text alone."""
        for part in self._parts:
            for _, columns in fields(part, "the text, or -, title or -, text, 0", 1, 4):
                text, title = (columns[0], "") if len(columns) == 1 else (columns[2], columns[1])
                yield title_of(title), text

    def _found(self) -> tuple[pa.ChunkedArray, list[str], Pairs]:
        """Passage ids, training queries and their pairs, read at the first call with one pass over the collection."""
        if self._read is None:
            training = Training(self._dual, self._cross)
            ids = read_ids(self._map)
            labelled = [(doc, mark(text)) for _, doc, text in self._labelled() if text]
            wanted = np.append(training.marks, np.array([one for _, one in labelled], np.int64))
            rows = find_rows(wanted, self._counted(len(ids)))
            rows, dev = np.split(rows, [len(training.marks)])
            self._require_fit(ids, [doc for doc, _ in labelled], dev)
            missing = len(np.unique(training.marks[rows < 0]))
            pairs, both = training.pairs(rows)
            self.facts |= {
                "training_passages": len(np.unique(training.marks)) - missing,
                "training_passages_not_in_the_collection": missing,
                "training_pairs_of_both_labels": both,
                "dev_passages_not_in_the_collection": int((dev < 0).sum()),
            }
            self._read = ids, list(training.queries), pairs
        return self._read

    def _counted(self, passages: int) -> Iterator[str]:
        """All texts; a `UserError` if they are not as many as the ids."""
        lines = 0
        with Progress("dureader_retrieval", passages, "passages") as progress:
            for _, text in self._lines():
                lines += 1
                progress.add(1)
                yield text
        if lines != passages:
            found = f"{self._map}: names {passages:,} lines, but the {len(self._parts)} parts beside it have {lines:,}"
            raise UserError(f"{found}; fetch what is missing")

    def _require_fit(self, ids: pa.ChunkedArray, told: list[str], rows: NDArray[np.int64]) -> None:
        """Refuse a map by which most dev passages stand at lines of another id; some texts stand twice."""
        there = np.flatnonzero(rows >= 0)
        found = ids.take(pa.array(rows[there])).to_pylist()
        wrong = sum(told[place] != doc for place, doc in zip(there.tolist(), found, strict=True))
        if 2 * wrong > len(found):
            said = f"{self._map}: gives another id to {wrong:,} of {len(found):,} passages of {self._dev}"
            raise UserError(f"{said}; the map or the order of the parts is not the release's")


def _question_id(where: str, record: dict[str, Any]) -> str:
    return text_of(where, record, "question_id", number=True)
