"""Stage `maxsim`: late interaction end to end, s(q, p) = Σ_i max_j q_i · p_j over tokens' vectors. No torch here.

All passages are scored, or those of which an index of tokens' vectors finds one near a query's; by the stored vectors,
or by those that the index's codes stand for, rounded to fp16. Scores of up to 32 vectors of length 1 a query are exact
(see `models.multi.max_sim`): how passages are grouped and how many threads there are changes no bit.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.columns import RankedRows
from tandem.data.rows import Order
from tandem.data.runs import write_rows
from tandem.errors import UserError
from tandem.models.ragged import Ids, ranges, token_ids
from tandem.retrieval.embeddings import Embeddings, Vectors
from tandem.retrieval.exact import Array, Best, pack
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.retrieve import embedded_rows, lists, open_embeddings
from tandem.stages.retrieval import MaxSimParams
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

TOKENS, PRODUCTS = 1 << 14, 1 << 24  # passages' tokens that are read, and products that are computed, at once


class Texts(Embeddings):
    """Vectors of texts' tokens; `offsets` says where each text's rows begin and end, shape (texts + 1,).

    Attributes:
        decode: gives vectors of rows instead of the stored ones, from an index's codes.
    """

    decode: Callable[[Ids], Vectors] | None = None

    def __init__(self, artifact: Artifact, side: str) -> None:
        super().__init__(artifact, side)
        self.offsets: Ids = np.load(artifact.path("offsets.npy"), mmap_mode="r", allow_pickle=False)

    def rows_of(self, texts: Ids) -> Vectors:
        """Vectors of ascending texts' tokens, end to end, float64, shape (tokens, dim)."""
        starts = np.asarray(self.offsets[texts])
        rows = ranges(starts, np.asarray(self.offsets[texts + 1]) - starts)
        if self.decode is not None:
            return self.decode(rows).astype(np.float16).astype(np.float64)
        numbers = rows // self.size
        edges = np.flatnonzero(np.diff(numbers)) + 1
        parts = (self.block(int(at[0]) // self.size, at % self.size) for at in np.split(rows, edges) if len(at))
        return np.concatenate([np.empty((0, self.dimension)), *parts]).astype(np.float64)


def max_sim(queries: Array, passages: Array, of_query: Ids, of_passage: Ids, same_token: bool = False) -> Array:
    """Σ_i max_j q_i · p_j of every query with every passage, both of at least one token, float64.

    Args:
        queries, passages: vectors of their tokens end to end, shape (tokens, dim).
        of_query, of_passage: how many tokens each has, shape (queries,) and (passages,).
        same_token: as of `models.multi.max_sim`.
    Returns:
        Shape (queries, passages).
    """
    starts = of_passage.cumsum() - of_passage
    if same_token:
        matches = token_ids(queries)[:, None] == token_ids(passages)
        products = np.where(matches, queries[:, :-2] @ passages[:, :-2].T, -np.inf)
        nearest = np.maximum.reduceat(products, starts, axis=1)
        nearest[np.isneginf(nearest)] = 0.0
    else:
        nearest = np.maximum.reduceat(queries @ passages.T, starts, axis=1)
    sums: Array = np.add.reduceat(nearest, of_query.cumsum() - of_query, axis=0)
    return sums


class Search:
    """A search of passages for queries, whose results are collected in `best`."""

    def __init__(self, job: Job[MaxSimParams], passages: Texts, queries: Texts, order: Order) -> None:
        self.job, self.passages, self.queries, self.order = job, passages, queries, order
        self.lengths = np.diff(passages.offsets)
        self.depth = min(job.params.depth, len(self.lengths))

    def score(self, best: Best, at: slice, queries: Ids, passages: Ids) -> None:
        """Merge the scores of queries, whose results are at `at`, with ascending passages."""
        vectors, tokens = self.queries.rows_of(queries), np.diff(self.queries.offsets)[queries]
        ends = self.lengths[passages].cumsum()
        cuts = np.searchsorted(ends, np.arange(TOKENS, ends[-1] if len(ends) else 0, TOKENS))
        for some in np.split(passages, np.unique(cuts)):
            if len(some):
                parts = self.passages.rows_of(some), tokens, self.lengths[some]
                scores = max_sim(vectors, *parts, self.job.params.same_token)
                ranks = np.broadcast_to(self.order.ranks[some], scores.shape)
                best.add(at, pack(scores / self.passages.temperature, ranks))

    def exhaustive(self, progress: Progress) -> Iterator[Best]:
        """The best of all passages, a group of queries at a time."""
        count, everything = len(self.queries.offsets) - 1, np.flatnonzero(self.lengths)
        longest = int(np.diff(self.queries.offsets).max(initial=1))
        step = max(1, PRODUCTS // TOKENS // longest)
        for first in range(0, count, step):
            best = Best(min(step, count - first), self.depth)
            self.score(best, slice(None), np.arange(first, first + len(best.keys)), everything)
            yield best
            progress.add(len(best.keys))

    def by_index(self, index: Artifact, progress: Progress) -> Iterator[Best]:
        """The best of the passages that have one of the tokens that an index finds for each token of a query."""
        from tandem.retrieval.indexes.search import Index
        from tandem.retrieval.indexes.threads import MOST, NONE, alone, lease_gpus

        params, gpu = self.job.params, lease_gpus(self.job)
        with alone(self.job.execution.workers) as threads:
            opened = Index(index, threads, gpu)
            opened.tune(params.nprobe, params.ef_search)
            if not params.rescore:
                self.passages.decode = (opened if gpu == NONE else Index(index, threads)).decode
            near = min(self.depth * params.rescore_factor, opened.rows, opened.rows if gpu == NONE else MOST)
            for query in range(len(self.queries.offsets) - 1):
                tokens = self.queries.rows_of(np.array([query])).astype(np.float32)
                rows = opened.search(tokens, near)[1]
                found = np.unique(np.searchsorted(self.passages.offsets, rows[rows >= 0], "right") - 1)
                best = Best(1, self.depth)
                self.score(best, slice(None), np.array([query]), found)
                yield best
                progress.add(1)


def run(job: Job[MaxSimParams]) -> None:
    """Search and write a run.

    Inputs: dataset, passages and queries (`token_vectors`), and perhaps an `index` of the passages' tokens.
    """
    require_dataset(job, "passages", "queries")
    open_embeddings(job, job.params.split)  # whether they fit together
    passages, queries = Texts(job.inputs["passages"], "passages"), Texts(job.inputs["queries"], "queries")
    index = job.inputs.get("index")
    if index is not None and (source := Path(index.upstream["passages"]).name) != passages.artifact.key:
        raise UserError(f"{index.folder}: was made from {source}; expected {passages.artifact.key}")
    search, rows = Search(job, passages, queries, Order(job.inputs["dataset"])), embedded_rows(job, queries)

    def ranked(progress: Progress) -> Iterator[RankedRows]:
        first = 0
        for best in search.exhaustive(progress) if index is None else search.by_index(index, progress):
            yield from lists(best, rows[first : first + len(best.keys)], search.order)
            first += len(best.keys)

    with writing(job) as draft, Progress(f"maxsim {job.key}", len(rows), "queries") as progress:
        lines = write_rows(job, draft, ranked(progress), search.order)
        draft.facts |= {"queries": len(rows), "lines": lines}
