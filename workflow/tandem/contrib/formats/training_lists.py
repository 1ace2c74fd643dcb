"""Only training files: a query, its positives and its negatives in one JSON object, in the form of several toolkits.

    FlagEmbedding         {"query": "…", "pos": ["…"], "neg": ["…"], "pos_scores": [0.9], "neg_scores": [0.1]}
    Tevatron              {"query_id": "…", "query": "…", "positive_passages": [{"docid", "title", "text"}],
                           "negative_passages": […]}; or positive_document_ids, with the passages in a file of their own
    DPR                   {"question": "…", "positive_ctxs": [{"title", "text"}], "hard_negative_ctxs": […]}
    Sentence Transformers {"anchor": "…", "positive": "…", "negative": "…"}; or negative_1, negative_2, …

A file is JSON lines or an array. The passages that the lists hold are the corpus, unless `corpus` names another. A
query or a passage without an id of its own is identified by its text, by 64 bits of its hash.
"""

import re
from array import array
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tandem.cluster.progress import say
from tandem.contrib.formats.files_of_splits import list_by_split, require_splits
from tandem.contrib.formats.named_columns import RECORDS_READ, find_columns, list_filled_keys
from tandem.contrib.formats.options import TrainingLists
from tandem.contrib.formats.rocketqa_tsv import hash_texts
from tandem.contrib.formats.role_readers import choose_own_reader
from tandem.contrib.formats.roles import PASSAGES_ROLE, QUERY_IDS
from tandem.data import tables
from tandem.data.dataset_files import DatasetFiles
from tandem.data.mentions import Mentions
from tandem.data.reading import PACKED_ENDS, JsonObject, parse_score, read_records, read_text
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
from tandem.data.splits import VALIDATED, choose_splits
from tandem.errors import UserError
from tandem.extras.file_columns import FileColumns
from tandem.extras.list_scores import finds_unscored
from tandem.extras.records import read_beginning, read_items
from tandem.extras.split_names import find_splits, split_name
from tandem.stages.base import Json

_QUERY_KEYS = ("query", "query_text", "question", "anchor")
_POSITIVE_KEYS = (
    "pos",
    "positive_passages",
    "positive_ctxs",
    "positives",
    "positive",
    "positive_document_ids",
)
_NEGATIVE_KEYS = (
    "neg",
    "negative_passages",
    "hard_negative_ctxs",
    "negative_ctxs",
    "negatives",
    "negative",
    "negative_document_ids",
)
# mined negatives, one per field, as Sentence Transformers writes tuples
_NUMBERED_NEGATIVE = re.compile(r"neg(?:ative)?_(\d+)")
_LABELLED_KEY = re.compile(r"(?:pos|neg)(?:itive|ative)?s?(?:[_\d].*)?")
_SCORE_KEYS = {"pos": "pos_scores", "neg": "neg_scores"}  # scores of a teacher, one per passage
_FILE_ENDS = (".jsonl", ".json", ".ndjson")
_ID_SCHEMA = pa.schema([("id", pa.string())])
# words in the names of files that are not only training lists
_OTHER_FILE_WORDS = {
    "qrels",
    "qrel",
    "queries",
    "topics",
    "judgements",
    "judgments",
}
# words in the name of a file that is not trained on, though it names no split
_EVALUATION_WORDS = {"eval", "evaluation"}


class PassageMention(NamedTuple):
    """A passage in the list of a query, with the ids that both have or get."""

    query: str
    text: str  # the query's
    split: str
    label: int
    passage: Passage
    score: float  # a teacher's; NaN without one
    where: str  # file and line


@dataset_format("training_lists")
class TrainingListsSource(Source):
    """Reads the files of `lists: {split: name}`, and perhaps the file `corpus`, in the folder of `path`.

    A query that occurs in several splits belongs to the first of test, dev and train; only the lists of that split
    count for it. A passage that is both positive and negative for a query is positive.
    """

    def __init__(self, job: DatasetJob, entry: TrainingLists) -> None:
        super().__init__(job, entry)
        files = DatasetFiles(job)
        lists = require_splits("lists", entry.lists, "a file")
        self._paths = list_by_split(lists, files)
        self._corpus = files.find(entry.corpus) if entry.corpus else None
        if self._corpus:
            choose_own_reader(self._corpus, PASSAGES_ROLE)  # refuses an unknown suffix
        self.places = {"corpus": f"{self._corpus or self._paths[0][1]} passage", "queries": "query"}

    @classmethod
    def recognise(cls, listing: Listing) -> Json | None:
        """Return the files that begin like such lists; None if other files have queries or judgements."""
        words = {name: set(split_name(name)) for name in listing.names}
        if any(own & _OTHER_FILE_WORDS for own in words.values()):
            return None
        heads = {name: listing.head(name) for name in listing.names if name.endswith(_FILE_ENDS)}
        splits: dict[str, list[str]] = {}
        for name, head in heads.items():
            if _has_key(head, _QUERY_KEYS) and _has_key(head, _POSITIVE_KEYS):
                unnamed = VALIDATED if words[name] & _EVALUATION_WORDS else "train"
                split = next(iter(find_splits(name)), unnamed)
                splits.setdefault(split, []).append(name)
        if not splits:
            return None

        keys: Json = {"lists": {}}
        for split, names in splits.items():
            keys["lists"][split] = names[0] if len(names) == 1 else names
        taken = list(chain.from_iterable(splits.values()))
        has_ids = any(_has_key(heads[name], ("docid", "positive_document_ids")) for name in taken)
        corpus = [name for name in heads if "corpus" in words[name] and name not in taken]
        if has_ids and len(corpus) == 1:
            keys["corpus"] = corpus[0]
        return keys

    def read_corpus(self) -> Iterator[Passage]:
        """Yield the passages of a corpus file, or else those in the lists; see `Source`."""
        if self._corpus:
            read = choose_own_reader(self._corpus, PASSAGES_ROLE)
            for where, record in read(self._corpus, PASSAGES_ROLE):
                doc = read_text(where, record, "id", number=True)
                title = read_text(where, record, "title") if record.get("title") else ""
                yield doc, title, read_text(where, record, "text")
            return
        repeated = pd.Index(self._read.passages).duplicated()
        for is_repeated, mention in zip(repeated, self._mentions(), strict=True):
            if not is_repeated:
                yield mention.passage

    def read_queries(self) -> Iterator[Query]:
        read = self._read
        names = read.mentions.queries
        return ((name, read.texts[number], read.splits[name]) for name, number in names.items())

    def read_qrels(self) -> Iterator[Judgement]:
        """Yield the positives of the lists, each in its query's split."""
        splits = self._read.splits
        return (
            (query, doc, 1, splits[query])
            for query, doc, label, _ in self.read_lists()
            if label > 0
        )

    def read_lists(self) -> Iterator[Listed]:
        """Yield each pair once, the pairs of a query together."""
        read = self._read
        queries = list(read.mentions.queries)
        pairs, self.facts["both_positive_and_negative"] = read.mentions.pairs(read.rows)
        for start in range(0, len(pairs.rows), tables.ROWS_PER_GROUP):
            part = slice(start, start + tables.ROWS_PER_GROUP)
            numbers = pairs.queries[part].tolist()
            docs = read.ids.take(pa.array(pairs.rows[part])).to_pylist()
            labels = pairs.labels[part].tolist()
            scores = read.scores[pairs.mentions[part]].tolist()
            for number, doc, label, score in zip(numbers, docs, labels, scores, strict=True):
                yield queries[number], doc, label, None if isnan(score) else score

    def list_columns(self) -> list[FileColumns]:
        """Return the keys of the lists in each file, those that are read and those that are not; see `NamesColumns`."""
        corpus = [(self._corpus, PASSAGES_ROLE)] if self._corpus else []
        columns = find_columns(corpus)
        for path in dict.fromkeys(path for _, path in self._paths):
            keys: dict[str, bool] = {}  # key → whether it is read
            for where, record in islice(_read_lists(path), RECORDS_READ):
                text = _find_key(where, record, _QUERY_KEYS)
                id_key = next((key for key in QUERY_IDS if key in record), None)
                numbered = _list_numbered_negatives(where, record)
                read = {text, id_key, *_POSITIVE_KEYS, *_NEGATIVE_KEYS, *numbered}
                for key in list_filled_keys(record):
                    keys[key] = key in read or key in _SCORE_KEYS.values()
            fields = {key: key for key, is_read in keys.items() if is_read}
            columns.append(FileColumns(path.name, fields, [key for key in keys if not keys[key]]))
        return columns

    @cached_property
    def _read(self) -> "_ListPairs":
        """Return all pairs. Memory: 33 bytes each, and the ids of the passages once."""
        queries: list[str] = []  # their texts
        places: dict[tuple[str, str], int] = {}  # query and split → their number
        asked = array("I")  # the number of each pair's query and split
        names = array("Q")  # hashes of the passages' ids
        texts = array("Q")  # hashes of the passages' titles and texts
        scores = array("f")

        def iterate_pairs() -> Iterator[tuple[str, int]]:
            """Yield each pair, and note its query, passage, text and score on the way."""
            seen: dict[str, int] = {}  # query → hash of its text
            for mention in self._mentions():
                doc, title, text = mention.passage
                own = hash_texts(*mention.text.split())
                if mention.query not in seen:
                    seen[mention.query] = own
                    queries.append(mention.text)
                elif seen[mention.query] != own:
                    problem = f"query id {mention.query} stands for two texts"
                    raise UserError(f"{mention.where}: {problem}; give each query an id of its own")
                asked.append(places.setdefault((mention.query, mention.split), len(places)))
                names.append(hash_texts(doc))
                texts.append(hash_texts(title, text))
                scores.append(mention.score)
                yield mention.query, mention.label

        mentions = Mentions(iterate_pairs())
        passages = np.frombuffer(names, np.uint64)
        contents = np.frombuffer(texts, np.uint64)
        rows, _ = pd.factorize(passages)
        is_first = ~pd.Index(passages).duplicated()
        # Rows number passages by first appearance: this is the first content of each mention's passage.
        first_contents = contents[is_first][rows]
        differing = len(np.unique(rows[contents != first_contents]))
        self.facts["passages_of_several_texts"] = differing
        if differing:
            say(
                f"training_lists: {differing:,} ids of passages have several texts; the first of each is kept"
            )
        splits, several = choose_splits(places)
        if several:
            what = "queries stand in lists of several splits"
            self.warnings.append(
                f"{len(several):,} {what}; the first of test, dev, train keeps them"
            )
        is_kept = np.array([splits[query] == split for query, split in places], bool)
        counted = np.where(is_kept[np.frombuffer(asked, np.uint32)], rows, -1)
        firsts = zip(is_first, self._mentions(), strict=True)
        ids = tables.make_table(
            ((mention.passage[0],) for first, mention in firsts if first), _ID_SCHEMA
        )["id"]
        teachers = np.frombuffer(scores, np.float32)
        return _ListPairs(mentions, queries, splits, passages, counted, teachers, ids)

    def _mentions(self) -> Iterator[PassageMention]:
        """Yield every passage of every list, in the form of its file."""
        for split, path in self._paths:
            for where, record in _read_lists(path):
                text = read_text(where, record, _find_key(where, record, _QUERY_KEYS))
                id_key = next((key for key in QUERY_IDS if key in record), None)
                query = f"{hash_texts(text):016x}"
                if id_key:
                    query = read_text(where, record, id_key, number=True)
                _find_key(where, record, _POSITIVE_KEYS)  # refuses a record without positives
                negative_keys = (*_NEGATIVE_KEYS, *_list_numbered_negatives(where, record))
                for label, keys in ((1, _POSITIVE_KEYS), (0, negative_keys)):
                    for passage, score in self._passages(where, record, keys):
                        yield PassageMention(query, text, split, label, passage, score, where)

    def _passages(
        self, where: str, record: JsonObject, keys: tuple[str, ...]
    ) -> Iterator[tuple[Passage, float]]:
        """Yield the passages in all of a record's lists with one label, with their scores."""
        for key in keys:
            if not record.get(key):
                continue
            values = record[key] if isinstance(record[key], list) else [record[key]]
            scores = record.get(_SCORE_KEYS.get(key, "")) or [None] * len(values)
            if not isinstance(scores, list) or len(scores) != len(values):
                count = f"a number for each of the {len(values)} of {key}"
                raise UserError(f"{where}: {_SCORE_KEYS[key]} does not have {count}")
            for value, score in zip(values, scores, strict=True):
                number = (
                    nan if score is None else parse_score(where, f"a score of {key}", str(score))
                )
                yield self._passage(where, key, value), number

    def _passage(self, where: str, key: str, value: Any) -> Passage:
        """Return a list's value as passage: an id, a text, or an object with a text and perhaps an id and a title."""
        if key.endswith("_document_ids"):
            if not self._corpus:
                raise UserError(
                    f"{where}: {key} names passages alone; name the file that has them, as corpus: FILE"
                )
            return read_text(where, {key: value}, key, number=True), "", ""

        record = value if isinstance(value, dict) else {"text": value}
        text_key = next((name for name in PASSAGES_ROLE.fields["text"] if name in record), "text")
        id_key = next(
            (name for name in PASSAGES_ROLE.fields["id"] if record.get(name) is not None), None
        )
        text = read_text(where, record, text_key)
        title = read_text(where, record, "title") if record.get("title") else ""
        if id_key:
            return read_text(where, record, id_key, number=True), title, text
        if self._corpus:
            raise UserError(
                f"{where}: a passage of {key} has no id, by which corpus would have it; leave corpus out"
            )
        return f"{hash_texts(title, text):016x}", title, text


class _ListPairs(NamedTuple):
    """Everything except the passages' texts: queries' texts and splits, and for each mention its passage."""

    mentions: Mentions
    texts: list[str]  # of the queries
    splits: dict[str, str]  # of the queries
    passages: NDArray[np.uint64]  # hashes of their ids
    rows: NDArray[np.int64]  # in `ids`; -1 in lists of a split that does not have the query
    scores: NDArray[np.float32]
    ids: pa.ChunkedArray  # of the passages, by first appearance


@finds_unscored("training_lists")
def find_unscored(entry: TrainingLists, split: str) -> str | None:
    """Return the place of passages without scores in the first list of a split's file; None if there are none.

    Archives and downloads are not searched.
    """
    if entry.lists is None or entry.path is None:
        return None
    for name in entry.lists.get(split, ()):
        paths = [Path(entry.path, f"{name}{end}") for end in ("", *PACKED_ENDS)]
        path = next(filter(Path.is_file, paths), None)
        where, record = next(_read_lists(path), ("", {})) if path else ("", {})
        numbered = _list_numbered_negatives(where, record)
        for key in filter(record.get, (*_POSITIVE_KEYS, *_NEGATIVE_KEYS, *numbered)):
            if not record.get(_SCORE_KEYS.get(key, "")):
                return f"{where}: {key} has no {_SCORE_KEYS.get(key, 'scores')}"
    return None


def _read_lists(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield (place, object) of each list in a file: JSON lines, or an array."""
    is_array = read_beginning(path).startswith(b"[")
    return read_items(path) if is_array else read_records(path)


def _find_key(where: str, record: JsonObject, names: tuple[str, ...]) -> str:
    """Return the first name that a record has; a `UserError` if it has none."""
    name = next((name for name in names if name in record), None)
    if name is None:
        raise UserError(f"{where}: no {names[0]}; a field named {' or '.join(names)} is needed")
    return name


def _list_numbered_negatives(where: str, record: JsonObject) -> list[str]:
    """Return a record's names of numbered negatives, by their numbers: `negative_2` before `negative_10`.

    Raises:
        UserError: texts under another name for positives or negatives would be left out.
    """
    numbered: list[tuple[int, str]] = []
    for key, value in record.items():
        is_known = key in (*_POSITIVE_KEYS, *_NEGATIVE_KEYS, *_SCORE_KEYS.values())
        if is_known or not _LABELLED_KEY.fullmatch(key):
            continue
        if match := _NUMBERED_NEGATIVE.fullmatch(key):
            numbered.append((int(match[1]), key))
        elif _holds_texts(value):
            allowed = f"{', '.join(_POSITIVE_KEYS)}, {', '.join(_NEGATIVE_KEYS)}, negative_1, negative_2, …"
            raise UserError(
                f"{where}: {key} is not read; rename it or leave it out; allowed: {allowed}"
            )
    return [key for _, key in sorted(numbered)]


def _holds_texts(value: Any) -> bool:
    """Return whether a field's value is a text, an object, or a list that begins with one, and not a number."""
    first = value[0] if isinstance(value, list) and value else value
    return bool(first) and isinstance(first, (str, dict))


def _has_key(head: bytes, names: tuple[str, ...]) -> bool:
    """Return whether the beginning of a JSON file has a key."""
    return re.search(rf'"({"|".join(names)})"\s*:'.encode(), head) is not None
