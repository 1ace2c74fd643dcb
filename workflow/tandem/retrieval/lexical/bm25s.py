"""The stage `bm25s`: the terms of every passage as numbers, which the engine bm25s makes its index of.

k1 and b are not in it: as with Lucene, any search names its own.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.artifact import Artifact, Job, writing
from tandem.data.collection import Collection, contents
from tandem.data.runs import Floats, ranked_order
from tandem.errors import UserError
from tandem.models.ragged import Ragged, write_ragged
from tandem.progress import Progress, say
from tandem.retrieval.lexical import FORMULAS
from tandem.retrieval.lexical import analyzers as words
from tandem.retrieval.lexical.bm25 import Hits, Query, Ranked

ROWS = 8192
NAME, DTYPE, VOCABULARY = "terms", "int32", "vocabulary.json"


def run(job: Job) -> None:
    """Number the terms of `title text` of every passage of the input `dataset`, in order of appearance.

    Parameters: `analyzer` and `language`, see `words.check`. Writes terms.ids and terms.offsets.npy (`Ragged`) and
    vocabulary.json (the terms by their number). In memory: a batch of passages and the vocabulary.
    """
    words.check(job.params)
    collection = Collection(job.inputs["dataset"])
    vocabulary: dict[str, int] = {}
    empty = 0

    def passages() -> Iterator[list[list[int]]]:
        """The passages' numbers, a batch at a time."""
        nonlocal empty
        split = words.terms(job.params)
        with Progress(f"bm25s {job.key}", collection.passages, "passages") as progress:
            for batch in collection.batches(ROWS, ("title", "text")):
                texts = (contents(*row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
                made = [[vocabulary.setdefault(term, len(vocabulary)) for term in split(text)] for text in texts]
                empty += sum(not row for row in made)
                progress.add(len(made))
                yield made

    with writing(job) as draft:
        rows, total = write_ragged(draft.folder, NAME, passages(), DTYPE)
        if not vocabulary:
            raise UserError(
                f"{collection.artifact.folder}: no passage has a term under analyzer {job.params['analyzer']}"
            )
        if empty:
            say(f"bm25s {job.key} · warning: {empty:,} passages have no term to index")
        draft.path(VOCABULARY).write_text(json.dumps(list(vocabulary), ensure_ascii=False), encoding="utf-8")
        draft.facts.update(passages=rows, indexed=rows - empty, terms=total, vocabulary=len(vocabulary))


SMALLEST = 1e-9  # k1 that a float32 score does not tell from 0
AHEAD = 64  # queries a thread may be ahead of the reader


class Numbered:
    """The stage `bm25s` as bm25s reads a corpus: lists of terms' numbers, read from the mapped file when asked for.

    Attributes:
        vocab: term → number.
    """

    def __init__(self, index: Artifact) -> None:
        self.rows = Ragged.open(index.folder, NAME, DTYPE)
        listed = json.loads(index.path(VOCABULARY).read_text(encoding="utf-8"))
        self.vocab: dict[str, int] = {term: number for number, term in enumerate(listed)}

    @property
    def ids(self) -> "Numbered":
        """The passages."""
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, len(self.rows), ROWS):
            ends = np.asarray(self.rows.offsets[start : start + ROWS + 1])
            numbers = self.rows.ids[ends[0] : ends[-1]].tolist()
            for begin, end in pairwise((ends - ends[0]).tolist()):
                yield numbers[begin:end]


class Eager:
    """The input `bm25s` of a job, opened.

    Parameters that it reads: `formula` (absent: lucene) and `delta` (absent or null: the paper's). Execution: `workers`
    threads.
    """

    def __init__(self, job: Job) -> None:
        index = job.inputs["bm25s"]
        self.corpus, self.split = Numbered(index), words.terms(index.params)
        self.docs = Collection(job.inputs["dataset"]).doc_ids()
        self.formula = job.params.get("formula") or "lucene"
        told = job.params.get("delta")
        self.delta = FORMULAS[self.formula] if told is None else told
        self.threads = int(job.execution.workers or os.cpu_count() or 1)
        self.facts = {"bm25s": version("bm25s"), "stemmer": version("PyStemmer")}

    def scores(self, k1: float, b: float) -> Any:
        """bm25s' index of the corpus under k1 and b: a column of scores for each term."""
        from bm25s import BM25

        # At 0 BM25+ of a term that is absent, which bm25s asks for, would be 0 / 0 and no passage be found.
        made = BM25(k1=max(k1, SMALLEST), b=b, delta=self.delta or 0.0, method=self.formula)
        made.index(self.corpus, show_progress=False)
        if made.nonoccurrence_array is not None:
            # bm25s keeps what a term scores above its absence; the papers score it as it is, and its absence with 0.
            per_term = np.diff(made.scores["indptr"])
            made.scores["data"] += np.repeat(made.nonoccurrence_array, per_term)
            made.nonoccurrence_array = None
        return made

    def search(self, queries: list[Query], k1: float, b: float, depth: int, progress: Progress) -> Iterator[Ranked]:
        """See `Engine.search`; queries are shared by threads, each of which holds a score for every passage."""
        index, step = self.scores(k1, b), AHEAD * self.threads
        with ThreadPoolExecutor(self.threads) as pool:
            for start in range(0, len(queries), step):
                batch = queries[start : start + step]
                for (query, _), hits in zip(batch, pool.map(partial(self._hits, index, depth), batch), strict=True):
                    if hits:
                        yield query, [doc for doc, _ in hits], [score for _, score in hits]
                progress.add(len(batch))

    def _hits(self, index: Any, depth: int, query: Query) -> Hits:
        """One query's best passages."""
        numbers = [self.corpus.vocab[term] for term in self.split(query[1]) if term in self.corpus.vocab]
        if not numbers:
            return []
        scores: Floats = index.get_scores_from_ids(numbers)
        rows = reaching(scores, depth)
        return ranked_order(self.docs.take(rows).to_pylist(), scores[rows])[:depth]


def reaching(scores: Floats, depth: int) -> NDArray[np.int64]:
    """Rows whose positive score is at least that at rank `depth`: ties at the cut are all in."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        some = scores[rows]
        rows = rows[some >= np.partition(some, len(some) - depth)[len(some) - depth]]
    return rows
