"""The released package of DuReader-retrieval: 8.1 million Chinese passages, training texts, labelled dev queries.

    passage-collection/part-*                one passage a line, in four columns: `-`, title or `-`, text, 0
    passage-collection/passage2id.map.json   line number over all parts, from 0 → passage id
    dev/dev.json                             a query a line, with its positive passages
    train/dual.train.tsv, cross.train.tsv    labelled pairs of texts, without ids

`dev/q2qid.dev.json` and `dev.q.format` repeat what dev.json says. The labels of the test set were never published.
"""

import hashlib
import zipfile
import zlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import ijson
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandem.artifact import Job
from tandem.data.files import Files
from tandem.data.reading import BOM, clean, fields, open_bytes, records, text_of, whole
from tandem.data.sources import Judgement, Listed, Passage, Query, Source
from tandem.data.sources.rocketqa import mentions, title_of
from tandem.errors import UserError
from tandem.progress import Progress

# ---- tandem.data.sources.dureader_retrieval
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


# ---- tandem.data.sources.dureader_retrieval
Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Training:
    """Every (query, passage, label) of `dual.train.tsv` and `cross.train.tsv`: 24 bytes each.

    Attributes:
        queries: text → number, in order of appearance.
        marks: of the passages; see `lookup`.
    """

    def __init__(self, dual: Path | None, cross: Path | None) -> None:
        self.queries: dict[str, int] = {}
        asked, marks, labels = array("q"), array("q"), array("b")
        for query, _, passage, label in mentions(dual, cross):
            asked.append(self.queries.setdefault(query, len(self.queries)))
            marks.append(mark(passage))
            labels.append(label)
        self._asked, self._labels = np.array(asked, np.int64), np.array(labels, np.int64)
        self.marks = np.array(marks, np.int64)

    def pairs(self, rows: NDArray[np.int64]) -> tuple[Pairs, int]:
        """Each pair of query and passage once, the pairs of a query together, both in order of first appearance.

        Args:
            rows: of the passages in the collection, as `marks`; pairs of those that are negative are left out.
        Returns:
            (query numbers, rows, labels), and how many pairs had both labels: they are positive.
        """
        there = rows >= 0
        asked, found, labels = self._asked[there], rows[there], self._labels[there]
        width = int(found.max(initial=0)) + 1
        _, first, back = np.unique(asked * width + found, return_index=True, return_inverse=True)
        highest, lowest = np.zeros(len(first), np.int64), np.ones(len(first), np.int64)
        np.maximum.at(highest, back, labels)
        np.minimum.at(lowest, back, labels)
        order = np.lexsort((first, asked[first]))
        chosen = first[order]
        return (asked[chosen], found[chosen], highest[order]), int((highest > lowest).sum())


def training_id(query: str) -> str:
    """The id of a training query, which the release names by its text alone."""
    return f"train-{hashlib.sha1(query.encode()).hexdigest()[:16]}"


# ---- tandem.data.sources.dureader_retrieval
BATCH = 1 << 14


def mark(text: str) -> int:
    """What tells two texts apart: the hash of their words."""
    return hash(" ".join(text.split()))


def find_rows(wanted: NDArray[np.int64], texts: Iterable[str]) -> NDArray[np.int64]:
    """The first row of each wanted text in a collection.

    Args:
        wanted: marks of the texts, repeated or not, in any order.
        texts: all texts of the collection.
    Returns:
        For each mark the row, from 0, of the first text that has it; -1 where none has.
    """
    marks, back = np.unique(wanted, return_inverse=True)
    rows = np.full(len(marks), -1, np.int64)
    before = 0
    for part in _batches(texts):
        found = np.isin(part, marks)
        at = np.searchsorted(marks, part[found])
        row = before + np.flatnonzero(found)
        # Of two equal texts the first counts: later assignments win, so they go in reverse and never replace a row.
        new = rows[at] < 0
        rows[at[new][::-1]] = row[new][::-1]
        before += len(part)
    return rows[back]


def _batches(texts: Iterable[str]) -> Iterable[NDArray[np.int64]]:
    """Marks of the texts, some thousand at a time."""
    part = array("q")
    for text in texts:
        part.append(mark(text))
        if len(part) == BATCH:
            yield np.array(part, np.int64)
            part = array("q")
    yield np.array(part, np.int64)


# ---- tandem.data.sources.dureader_retrieval
CHUNK = 1 << 16  # ids that are Python objects at once
MOST = 1 << 40  # lines of a collection


def read_ids(path: Path) -> pa.ChunkedArray:
    """The passage id of each line, streamed: 36 bytes a passage are kept, for ids of 32 characters.

    The keys may come in any order.

    Raises:
        UserError: not such a JSON object, or its keys are not the numbers from 0, each once.
    """
    numbers: list[NDArray[np.int64]] = []
    chunks: list[pa.Array] = []
    in_order = True
    stream = _pairs(path)
    while pairs := list(islice(stream, CHUNK)):
        start = CHUNK * len(chunks)
        numbers.append(np.array([number for number, _ in pairs], np.int64))
        chunks.append(pa.array([name for _, name in pairs], pa.string()))
        in_order &= np.array_equal(numbers[-1], np.arange(start, start + len(pairs)))
    ids = pa.chunked_array(chunks, pa.string())
    if in_order:
        return ids
    lines = np.concatenate(numbers)
    order = np.argsort(lines, kind="stable")
    _require_all(path, lines[order])
    return pa.chunked_array(
        [ids.take(pa.array(order[start : start + CHUNK])).combine_chunks() for start in range(0, len(order), CHUNK)],
        pa.string(),
    )


def each(ids: pa.ChunkedArray) -> Iterator[str]:
    """The ids in line order."""
    for chunk in ids.chunks:
        yield from chunk.to_pylist()


def _pairs(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, passage id) of each member of the object, in file order."""
    with open_bytes(path) as file:
        try:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            for key, value in ijson.kvitems(file, ""):
                yield _line(path, key), _name(path, key, value)
        except (ijson.JSONError, EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
            why = " ".join(str(error).split())[:80]
            raise UserError(f"{path}: broken or truncated ({why}); fetch it again") from None


def _line(path: Path, key: str) -> int:
    """A line number."""
    number = whole(str(path), "a line number", key)
    if not 0 <= number < MOST:
        raise UserError(f"{path}: a line number is {key[:40]!r}; numbers from 0 are allowed")
    return number


def _name(path: Path, key: str, value: Any) -> str:
    """A passage id."""
    if not isinstance(value, str):
        raise UserError(f"{path}: the id of line {key} is {value!r}; a text is needed")
    return clean(str(path), f"the id of line {key}", value)


def _require_all(path: Path, lines: NDArray[np.int64]) -> None:
    """Refuse sorted line numbers that are not 0, 1, 2, …"""
    wrong = np.flatnonzero(lines != np.arange(len(lines)))
    if len(wrong):
        first = int(wrong[0])
        found = "twice" if first and lines[first] == lines[first - 1] else f"but not line {first}"
        raise UserError(f"{path}: names line {lines[first]} {found}; all lines from 0, each once, are needed")
