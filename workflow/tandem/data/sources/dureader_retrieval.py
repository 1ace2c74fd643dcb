"""The released package of DuReader-retrieval: 8.1 million Chinese passages, training texts, labelled dev queries.

    passage-collection/part-*                one passage a line, in four columns: `-`, title or `-`, text, 0
    passage-collection/passage2id.map.json   line number over all parts, from 0 → passage id
    dev/dev.json                             a query a line, with its positive passages
    train/dual.train.tsv, cross.train.tsv    labelled pairs of texts, without ids

`dev/q2qid.dev.json` and `dev.q.format` repeat what dev.json says. The labels of the test set were never published.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import ijson
import numpy as np
import pyarrow as pa

from tandem.cluster.progress import Progress
from tandem.config import datasets
from tandem.data.dataset_files import DatasetFiles
from tandem.data.mentions import Integers, MentionPairs, Mentions
from tandem.data.reading import (
    BOM,
    PACKING_ERRORS,
    open_bytes,
    parse_whole,
    read_fields,
    read_records,
    read_text,
    require_unicode,
)
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
from tandem.data.sources.rocketqa import read_mentions, read_title
from tandem.data.validate import TextHashes
from tandem.errors import UserError
from tandem.stages.base import Json

_COLLECTION = "passage-collection"
IDS_PER_CHUNK = 1 << 16  # ids that are Python objects at once


class Release(NamedTuple):
    """Everything that one pass over the collection finds out: passage ids by line, training queries, their pairs."""

    ids: pa.ChunkedArray
    queries: list[str]
    pairs: MentionPairs


@dataset_format("dureader_retrieval")
class DuReaderRetrievalSource(Source):
    """Read the folder named by `path`, as the package unpacks; training files may be missing, both or one.

    A training passage is looked up in the collection by its text; missing ones are counted and left out. Training
    queries are named by a hash of their text.
    """

    def __init__(self, job: DatasetJob, entry: datasets.DuReaderRetrieval) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        self._parts = files.glob(f"{_COLLECTION}/part-*")
        self._map = files.find(f"{_COLLECTION}/passage2id.map.json")
        self._dev = files.find("dev/dev.json")
        self._dual = files.find_optional("train/dual.train.tsv")
        self._cross = files.find_optional("train/cross.train.tsv")
        self.places = {"corpus": f"{self._parts[0].parent}/part-*", "queries": str(self._dev)}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        return {} if listing.matching(f"{_COLLECTION}/passage2id.map.json") else None

    def read_corpus(self) -> Iterator[Passage]:
        ids = (doc for chunk in self._release.ids.chunks for doc in chunk.to_pylist())
        for doc_id, (title, text) in zip(ids, self._lines(), strict=True):
            yield doc_id, title, text

    def read_queries(self) -> Iterator[Query]:
        """Yield dev queries, then training queries; the latter are kept if they have a known positive."""
        for where, record in read_records(self._dev):
            yield (
                read_text(where, record, "question_id", number=True),
                read_text(where, record, "question"),
                "dev",
            )
        for query in self._release.queries:
            yield name_training_query(query), query, ""

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the labelled passages of dev, and the positives of both training files."""
        yield from ((query, doc, 1, "dev") for query, doc, _ in self._labelled())
        yield from ((query, doc, 1, "train") for query, doc, label, _ in self.read_lists() if label)

    def read_lists(self) -> Iterator[Listed]:
        """Yield the pairs of both training files, each once."""
        release = self._release
        pairs = release.pairs
        names = [name_training_query(query) for query in release.queries]
        docs = release.ids.take(pa.array(pairs.rows)).to_pylist()
        for number, doc, label in zip(
            pairs.queries.tolist(), docs, pairs.labels.tolist(), strict=True
        ):
            yield names[number], doc, label, None

    def _labelled(self) -> Iterator[tuple[str, str, str]]:
        """Yield (query id, passage id, text) of each labelled passage of dev.json.

        The text is empty if it is missing.
        """
        for where, record in read_records(self._dev):
            query = read_text(where, record, "question_id", number=True)
            paragraphs = record.get("answer_paragraphs")
            if not isinstance(paragraphs, list) or not all(
                isinstance(paragraph, dict) for paragraph in paragraphs
            ):
                raise UserError(
                    f"{where}: answer_paragraphs is not a list of objects; each has paragraph_id and its text"
                )
            for paragraph in paragraphs:
                text = ""
                if "paragraph_text" in paragraph:
                    text = read_text(where, paragraph, "paragraph_text")
                yield query, read_text(where, paragraph, "paragraph_id", number=True), text

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Yield (title, text) of each line of all parts; a line may be only the text."""
        for part in self._parts:
            for _, columns in read_fields(part, "the text, or -, title or -, text, 0", 1, 4):
                if len(columns) == 1:
                    yield "", columns[0]
                else:
                    yield read_title(columns[1]), columns[2]

    @cached_property
    def _release(self) -> Release:
        passages = TextHashes()

        def iterate_pairs() -> Iterator[tuple[str, int]]:
            for query, _, text, label in read_mentions(self._dual, self._cross):
                passages.add([_join_words(text)])
                yield query, label

        training = Mentions(iterate_pairs())
        ids = read_ids(self._map)
        labelled = [(doc, text) for _, doc, text in self._labelled() if text]
        collection = hash_words(self._counted(len(ids)))
        rows = collection.rows(passages)
        dev_rows = collection.rows(hash_words(text for _, text in labelled))
        self._require_fit(ids, [doc for doc, _ in labelled], dev_rows)

        distinct = len(np.unique(passages.array()))
        missing = len(np.unique(passages.array()[rows < 0]))
        pairs, both = training.pairs(rows)
        self.facts |= {
            "training_passages": distinct - missing,
            "training_passages_not_in_the_collection": missing,
            "training_pairs_of_both_labels": both,
            "dev_passages_not_in_the_collection": int((dev_rows < 0).sum()),
        }
        return Release(ids, list(training.queries), pairs)

    def _counted(self, passages: int) -> Iterator[str]:
        """Yield all texts; a `UserError` if they are not as many as the ids."""
        with Progress("dureader_retrieval", passages, "passages") as progress:
            for _, text in self._lines():
                progress.add(1)
                yield text
        lines = progress.done
        if lines != passages:
            error = f"{self._map}: names {passages:,} lines, but the {len(self._parts)} parts beside it have {lines:,}"
            raise UserError(f"{error}; fetch what is missing")

    def _require_fit(self, ids: pa.ChunkedArray, docs: list[str], rows: Integers) -> None:
        """Refuse a map that gives most dev passages another id; a few may differ, as some texts occur twice."""
        present = np.flatnonzero(rows >= 0)
        mapped = ids.take(pa.array(rows[present])).to_pylist()
        wrong = sum(docs[at] != doc for at, doc in zip(present.tolist(), mapped, strict=True))
        if 2 * wrong > len(mapped):
            error = f"{self._map}: gives another id to {wrong:,} of {len(mapped):,} passages of {self._dev}"
            raise UserError(f"{error}; the map or the order of the parts is not the release's")


def name_training_query(query: str) -> str:
    """Return the id of a training query, which the release names only by its text."""
    return f"train-{hashlib.sha1(query.encode()).hexdigest()[:16]}"


def _join_words(text: str) -> str:
    """Return a form that texts share if they differ only in white space."""
    return " ".join(text.split())


def hash_words(texts: Iterable[str]) -> TextHashes:
    """Hash texts; those that differ only in white space have equal hashes."""
    return TextHashes(map(_join_words, texts))


def read_ids(path: Path) -> pa.ChunkedArray:
    """Return the passage id of each line by `passage2id.map.json`, keys in any order: 36 bytes a passage.

    Raises:
        UserError: not such a JSON object, or its keys are not the numbers from 0, each once.
    """
    numbers = array("q")
    chunks: list[pa.Array] = []
    members = _read_members(path)
    while pairs := list(islice(members, IDS_PER_CHUNK)):
        numbers.extend(number for number, _ in pairs)
        chunks.append(pa.array([name for _, name in pairs], pa.string()))
    ids = pa.chunked_array(chunks, pa.string())
    lines = np.frombuffer(numbers, np.int64)
    expected = np.arange(len(lines))
    if np.array_equal(lines, expected):
        return ids

    order = np.argsort(lines, kind="stable")
    ordered = lines[order]
    wrong = np.flatnonzero(ordered != expected)
    if len(wrong):
        first = int(wrong[0])
        is_repeated = first > 0 and ordered[first] == ordered[first - 1]
        error = "twice" if is_repeated else f"but not line {first}"
        raise UserError(
            f"{path}: names line {ordered[first]} {error}; all lines from 0, each once, are needed"
        )
    parts = []
    for start in range(0, len(order), IDS_PER_CHUNK):
        part = ids.take(pa.array(order[start : start + IDS_PER_CHUNK]))
        parts.append(part.combine_chunks())
    return pa.chunked_array(parts, pa.string())


def _read_members(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, passage id) of each member of the object, in file order."""
    with open_bytes(path) as file:
        try:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            for key, value in ijson.kvitems(file, ""):
                number = parse_whole(str(path), "a line number", key)
                if number < 0:
                    raise UserError(
                        f"{path}: a line number is {key[:40]!r}; numbers from 0 are allowed"
                    )
                if not isinstance(value, str):
                    raise UserError(f"{path}: the id of line {key} is {value!r}; a text is needed")
                yield number, require_unicode(str(path), f"the id of line {key}", value)
        except (ijson.JSONError, *PACKING_ERRORS, OSError) as error:
            why = " ".join(str(error).split())[:80]
            raise UserError(f"{path}: broken or truncated ({why}); fetch it again") from None
