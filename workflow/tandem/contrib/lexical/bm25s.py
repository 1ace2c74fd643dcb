"""The engine bm25s (Lù 2024): stage `bm25s`, passages as numbered terms, and the search of the stage `bm25`.

The score of every term in every passage is computed first; a query adds up the scores of its terms. Formulas, with tf a
term's frequency in a passage of |d| terms, L = 1 - b + b |d| / mean |d|, N passages, df of them with the term:

    lucene   ln(1 + (N - df + 1/2) / (df + 1/2)) · tf / (k1 L + tf)
    bm25+    ln((N + 1) / df) · ((k1 + 1) tf / (k1 L + tf) + δ)                            (Lv and Zhai, CIKM 2011)
    bm25l    ln((N + 1) / (df + 1/2)) · (k1 + 1) (c + δ) / (k1 + c + δ) with c = tf / L    (Lv and Zhai, SIGIR 2011)

each summed over the query's terms that the passage has. Separate fields are searched by BM25F with a b for each field
(Zaragoza et al., TREC 2004): with tf_f a term's frequency in a field of |d|_f terms, a field's weight w_f and b_f,

    c = Σ_f w_f tf_f / (1 - b_f + b_f |d|_f / mean |d|_f)
    score = ln(1 + (N - df + 1/2) / (df + 1/2)) · c / (k1 + c)

where df of the N passages have the term in a searched field, and means are over all passages.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress, warn
from tandem.cluster.threads import count_usable_cores
from tandem.contrib.lexical.options import Bm25sParams
from tandem.data.collection import Collection, join_contents
from tandem.data.columns import Floats
from tandem.data.observers import list_doubts
from tandem.data.rows import Rows
from tandem.data.runs import order_by_score
from tandem.data.text import load_segmenter
from tandem.errors import UserError
from tandem.extras.words import LUCENE_STOP_WORDS, MARKS
from tandem.models.ragged import Ragged, write_ragged
from tandem.retrieval.lexical import LexicalQuery, LexicalRanking
from tandem.stages.data import FORMULAS, Bm25Variant
from tandem.store.job import Job, writing

TERMS_NAME = "terms"
_FIELDS = ("title", "text")
DTYPE = "int32"
VOCABULARY = "vocabulary.json"
PASSAGES_PER_BLOCK_OF_TERMS = 8192  # passages whose terms are Python lists at a time
NUMBERS_PER_BLOCK = 1 << 16  # passages, and then terms, whose numbers are in float64 at a time
_SMALLEST_K1 = 1e-9  # a k1 that float32 scores do not distinguish from 0
_QUERIES_AHEAD = 64  # queries that a thread may be ahead of the reader
_CACHED_WORDS = 1 << 20  # words whose term is cached: texts repeat words


def _compile_words(piece: str, letter: str) -> re.Pattern[str]:
    """Return the pattern of words: pieces that a sign between two letters, or between two digits, joins."""
    joint = rf"(?:(?<={letter})[.'’:·](?=[^\W\d])|(?<=\d)[.,;'’](?=\d))"
    return re.compile(rf"{piece}(?:{joint}{piece})*")


_WORD = _compile_words(rf"\w+(?:[{MARKS}]+\w*)*", rf"[^\W\d]|[{MARKS}]")
# Texts in ASCII have no marks, and are split in a third of the time without them.
_ASCII_WORD = _compile_words(r"\w+", r"[^\W\d]")


def run(job: Job[Bm25sParams]) -> None:
    """Number the terms of `title text` of every passage of the input `dataset`, in order of appearance.

    Writes terms.ids and terms.offsets.npy (`Ragged`) and vocabulary.json (the terms by their number). With `fields`,
    title and text have two such files each, and share the numbers. k1 and b are not needed: as with Lucene, every
    search has its own. In memory: a batch of passages and the vocabulary.
    """
    analyzer = job.params.analyzer
    language = job.params.language
    if analyzer in ("default", "porter") and language != "en":
        problem = f"of bm25s {analyzer} is English and language is {language}"
        raise UserError(f"analyzer: {problem}; none, whitespace or jieba is allowed")
    collection = Collection(job.inputs["dataset"])
    split = make_term_splitter(job.params)
    vocabulary = dict[str, int]()
    files = {name: (name,) for name in _FIELDS} if job.params.fields else {TERMS_NAME: _FIELDS}

    def passages(columns: Sequence[str], progress: Progress) -> Iterator[list[list[int]]]:
        """Yield the numbered terms of the corpus, a batch at a time; new terms get the next number."""
        for batch in collection.batches(PASSAGES_PER_BLOCK_OF_TERMS, columns):
            texts = map(
                join_contents if len(columns) > 1 else str,
                *(column.to_pylist() for column in batch.columns),
            )
            numbers = [
                [vocabulary.setdefault(term, len(vocabulary)) for term in split(text)]
                for text in texts
            ]
            progress.add(len(numbers))
            yield numbers

    with writing(job) as draft:
        rows = collection.passages
        total = 0
        lengths = np.zeros(collection.passages, np.int64)
        with Progress(f"bm25s {job.key}", rows * len(files), "passages") as progress:
            for name, columns in files.items():
                total += write_ragged(draft.folder, name, passages(columns, progress), DTYPE)[1]
                lengths += np.diff(Ragged.open(draft.folder, name, DTYPE).offsets)
        if not vocabulary:
            raise UserError(
                f"{collection.artifact.folder}: no passage has a term under analyzer {analyzer}"
            )
        empty = int((lengths == 0).sum())
        if empty:
            warn(job, draft, f"{empty:,} passages have no term to index")
        draft.path(VOCABULARY).write_text(
            json.dumps(list(vocabulary), ensure_ascii=False), encoding="utf-8"
        )
        draft.facts.update(
            passages=rows, indexed=rows - empty, terms=total, vocabulary=len(vocabulary)
        )
        for line in list_doubts("analysed", job):
            warn(job, draft, line)


def make_term_splitter(params: Bm25sParams) -> Callable[[str], list[str]]:
    """Return a function that splits a text into its terms, in their order.

    `analyzer` is `default` or `porter` (English), `none` (words unstemmed, in English without stop words), `whitespace`
    (texts are tokens) or `jieba` (Chinese words).
    """
    if params.analyzer == "whitespace":
        return str.split
    if params.analyzer == "jieba":
        return load_segmenter()
    import Stemmer

    stop = LUCENE_STOP_WORDS if params.language == "en" else set[str]()
    porter: Callable[[str], str] = Stemmer.Stemmer("porter", 0).stemWord

    @lru_cache(_CACHED_WORDS)
    def term(word: str) -> str:
        whole = word[:-2] if word.endswith(("'s", "’s")) else word
        if whole in stop:
            return ""
        # Words of one or two letters are unchanged, as in Porter's program; Snowball's stemmer turns `s` into "".
        return porter(whole) if params.analyzer != "none" and len(whole) > 2 else whole

    def split(text: str) -> list[str]:
        pattern = _ASCII_WORD if text.isascii() else _WORD
        terms = map(term, pattern.findall(text.lower()))
        return list(filter(None, terms))

    return split


class TermNumbers:
    """The passages of the stage `bm25s` in the form in which bm25s reads a corpus.

    This is a list of lists of terms' numbers, which are read from the mapped file when needed.
    """

    def __init__(self, rows: Ragged, vocab: dict[str, int]) -> None:
        self.rows = rows
        self.vocab = vocab

    @property
    def ids(self) -> "TermNumbers":
        """Return the passages."""
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, len(self.rows), PASSAGES_PER_BLOCK_OF_TERMS):
            ends = np.asarray(self.rows.offsets[start : start + PASSAGES_PER_BLOCK_OF_TERMS + 1])
            numbers = self.rows.ids[ends[0] : ends[-1]].tolist()
            for begin, end in pairwise((ends - ends[0]).tolist()):
                yield numbers[begin:end]


class Bm25s:
    """Search the input `bm25s` of a job with `workers` threads (execution)."""

    def __init__(self, job: Job[Any]) -> None:
        index = job.inputs["bm25s"]
        params = job.params
        assert isinstance(params, Bm25Variant)
        if index.params_as(Bm25sParams).fields and not params.fields:
            problem = "has fields apart; name an index of bm25s without fields"
            raise UserError(f"{index.folder}: {problem}")
        self.folder = index.folder
        self.split = make_term_splitter(index.params_as(Bm25sParams))
        terms = json.loads(index.path(VOCABULARY).read_text(encoding="utf-8"))
        self.vocab: dict[str, int] = {term: number for number, term in enumerate(terms)}
        self.fields = params.fields
        self.field_b = params.field_b
        self.docs = Collection(job.inputs["dataset"]).doc_ids()
        self.formula = params.formula
        self.delta = FORMULAS[self.formula] if params.delta is None else params.delta
        self.threads = job.execution.workers or count_usable_cores()
        self.facts: dict[str, object] = {"bm25s": version("bm25s"), "stemmer": version("PyStemmer")}
        self.index: Any = None
        self.weighted: tuple[float, float] | None = None  # the k1 and b of the index

    def close(self) -> None:
        """Close nothing: files are mapped."""

    def scores(self, k1: float, b: float) -> Any:
        """Return the scores of the corpus under k1 and b, a column for each term, by bm25s or over fields."""
        if self.fields:
            own = self.field_b.own() if self.field_b else {}
            fields = [
                Field(Ragged.open(self.folder, name, DTYPE), weight, own.get(name, b))
                for name, weight in self.fields.weights().items()
            ]
            return FieldScores(fields, len(self.vocab), k1)
        from bm25s import BM25

        # bm25s also computes BM25+ of an absent term. With k1 = 0, it would be 0 / 0, and no passage be retrieved.
        index = BM25(k1=max(k1, _SMALLEST_K1), b=b, delta=self.delta or 0.0, method=self.formula)
        index.index(
            TermNumbers(Ragged.open(self.folder, TERMS_NAME, DTYPE), self.vocab),
            show_progress=False,
        )
        if index.nonoccurrence_array is not None:
            # bm25s stores a term's score minus that of its absence; in the papers, its absence scores 0.
            per_term = np.diff(index.scores["indptr"])
            index.scores["data"] += np.repeat(index.nonoccurrence_array, per_term)
            index.nonoccurrence_array = None
        return index

    def search(
        self, queries: list[LexicalQuery], k1: float, b: float, depth: int, progress: Progress
    ) -> Iterator[LexicalRanking]:
        """See `LexicalEngine.search`. Threads share the queries; each has a score for every passage in memory."""
        if self.weighted != (k1, b):
            self.index = None  # free it before the next: each is as large as the corpus
            self.index = self.scores(k1, b)
            self.weighted = (k1, b)
        step = _QUERIES_AHEAD * self.threads
        with ThreadPoolExecutor(self.threads) as pool:
            for start in range(0, len(queries), step):
                batch = queries[start : start + step]
                results = pool.map(
                    partial(self._hits, self.index, depth), [text for _, text in batch]
                )
                for (query, _), hits in zip(batch, results, strict=True):
                    if hits:
                        yield query, [doc for doc, _ in hits], [score for _, score in hits]
                progress.add(len(batch))

    def _hits(self, index: Any, depth: int, text: str) -> list[tuple[str, float]]:
        numbers = [self.vocab[term] for term in self.split(text) if term in self.vocab]
        if not numbers:
            return []
        scores: Floats = index.get_scores_from_ids(numbers)
        rows = find_reaching(scores, depth)
        return order_by_score(self.docs.take(rows).to_pylist(), scores[rows])[:depth]


def find_reaching(scores: Floats, depth: int) -> Rows:
    """Return the rows with the `depth` best positive scores, and all rows that tie with the last of these."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        some = scores[rows]
        rows = rows[some >= np.partition(some, len(some) - depth)[len(some) - depth]]
    return rows


class Field:
    """A field of all passages: its numbered terms, a row for each passage, with the field's weight and b."""

    def __init__(self, rows: Ragged, weight: float, b: float) -> None:
        lengths = np.diff(rows.offsets).astype(np.float64)
        ratios = 1 - b + b * lengths / max(lengths.mean(), 1e-9)
        self.rows = rows
        self.factors = np.divide(weight, ratios, out=np.zeros_like(ratios), where=lengths > 0)

    def frequencies(self, span: slice, terms: int) -> Any:
        """Return the terms' frequencies in some passages, each times its passage's factor, as a SciPy matrix."""
        from scipy import sparse

        bounds = np.asarray(self.rows.offsets[span.start : span.stop + 1])
        ids = np.array(self.rows.ids[bounds[0] : bounds[-1]])
        data = np.repeat(self.factors[span], np.diff(bounds))
        matrix = sparse.csr_matrix((data, ids, bounds - bounds[0]), shape=(len(bounds) - 1, terms))
        matrix.sum_duplicates()
        return matrix


class FieldScores:
    """The score of every term in every passage that has it in a searched field; `terms` is the number of terms.

    Memory: 8 bytes per score, three times as much during the computation.
    """

    def __init__(self, fields: Sequence[Field], terms: int, k1: float) -> None:
        from scipy import sparse

        self.passages = len(fields[0].rows)
        blocks = []
        for start in range(0, self.passages, NUMBERS_PER_BLOCK):
            span = slice(start, min(start + NUMBERS_PER_BLOCK, self.passages))
            blocks.append(
                sum(field.frequencies(span, terms) for field in fields).astype(np.float32)
            )
        self.columns: Any = sparse.vstack(blocks, format="csc")
        df = np.diff(self.columns.indptr)
        idf = np.log1p((self.passages - df + 0.5) / (df + 0.5))
        for start in range(0, terms, NUMBERS_PER_BLOCK):
            bounds = self.columns.indptr[start : start + NUMBERS_PER_BLOCK + 1]
            c = self.columns.data[bounds[0] : bounds[-1]].astype(np.float64)
            scores = (
                np.repeat(idf[start : start + NUMBERS_PER_BLOCK], np.diff(bounds)) * c / (k1 + c)
            )
            self.columns.data[bounds[0] : bounds[-1]] = scores

    def get_scores_from_ids(self, numbers: list[int]) -> Floats:
        """Return the scores of all passages for a query's terms, which may repeat: float32, shape (passages,)."""
        scores = np.zeros(self.passages, np.float32)
        for number in numbers:
            begin, end = self.columns.indptr[number : number + 2]
            scores[self.columns.indices[begin:end]] += self.columns.data[begin:end]
        return scores
