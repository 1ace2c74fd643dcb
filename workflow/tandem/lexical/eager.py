"""The engine bm25s (Lù 2024): scores of every term in every passage are computed first, a query adds up its terms'.

Formulas, with tf a term's frequency in a passage of |d| terms, L = 1 - b + b |d| / mean |d|, N passages, df of them
with the term:

    lucene   ln(1 + (N - df + 1/2) / (df + 1/2)) · tf / (k1 L + tf)
    bm25+    ln((N + 1) / df) · ((k1 + 1) tf / (k1 L + tf) + δ)                            (Lv and Zhai, CIKM 2011)
    bm25l    ln((N + 1) / (df + 1/2)) · (k1 + 1) (c + δ) / (k1 + c + δ) with c = tf / L    (Lv and Zhai, SIGIR 2011)

each summed over the query's terms that the passage has. bm25s itself gives passages without a term that term's value
for tf = 0, which takes BM25+'s lower bound out of the ranking; here it counts where the papers count it.

Memory: 42 bytes for each different term of each passage while the scores are made, 8 afterwards (measured).
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

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import Floats, ranked_order
from tandem.lexical import FORMULAS, words
from tandem.lexical.engine import Hits, Query, Ranked
from tandem.lexical.terms import DTYPE, NAME, VOCABULARY
from tandem.models.ragged import Ragged
from tandem.store.artifact import Artifact
from tandem.store.job import Job

ROWS = 8192  # passages whose terms are lists at a time
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
