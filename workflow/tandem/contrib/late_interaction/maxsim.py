"""Stage `maxsim`: search by late interaction, s(q, p) = Σ_i max_j q_i · p_j over tokens' vectors, without torch.

The stage scores all passages, or the most promising ones that an index finds by tokens near the query's. It uses the
stored vectors, or those that the index decodes, rounded to fp16. For queries of up to 32 vectors of length 1, scores
are exact (see `token_scores.compute_max_sim`), so that neither the grouping of passages nor the number of threads
changes a bit. Scores of other vectors are float64 sums rounded to float32, which hardly ever depend on the order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.late_interaction.options import MaxSimParams
from tandem.contrib.late_interaction.same_token import sum_same_tokens
from tandem.data.columns import RankedRows
from tandem.data.rows import PassageOrder
from tandem.data.runs import write_rows
from tandem.errors import UserError
from tandem.extras.faiss_gpus import NONE, lease_gpus
from tandem.extras.searched_indexes import (
    MOST_ON_GPU,
    SearchedIndex,
    ShortLists,
    compared_searches,
    opened_index,
    space_evenly,
)
from tandem.models.ragged import Ids, join_ranges
from tandem.retrieval.embeddings import Embeddings, FloatVectors
from tandem.retrieval.exact import Array, BestPassages, pack_keys
from tandem.retrieval.faiss_search import Threads, open_threads
from tandem.retrieval.retrieve import (
    iterate_ranked,
    open_embeddings,
    read_embedded_rows,
)
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

OFFSETS = "offsets.npy"  # next to the blocks: where each text's rows begin and end
# numbers of passages' tokens that are read at once, and of products that are computed at once
TOKENS_PER_BLOCK = 1 << 14
PRODUCTS = 1 << 24


class MappedTexts(Embeddings):
    """Read the vectors of texts' tokens; `offsets` says where each text's rows begin and end, shape (texts + 1,)."""

    decode: Callable[[Ids], FloatVectors] | None = (
        None  # returns the vectors of rows decoded by an index, instead of the stored ones
    )

    def __init__(self, artifact: Artifact, side: str) -> None:
        super().__init__(artifact, side)
        self.offsets: Ids = np.load(artifact.path(OFFSETS), mmap_mode="r", allow_pickle=False)

    def rows_of(self, texts: Ids) -> FloatVectors:
        """Return the vectors of the tokens of texts, given by ascending numbers; float64, shape (tokens, dim)."""
        starts = np.asarray(self.offsets[texts])
        rows = join_ranges(starts, np.asarray(self.offsets[texts + 1]) - starts)
        vectors = self.pick(rows) if self.decode is None else self.decode(rows).astype(np.float16)
        return vectors.astype(np.float64)


class OneQuery:
    """The vectors of one query's tokens, shape (tokens, dim), in the form in which `TokenSearch` expects queries."""

    def __init__(self, vectors: Array) -> None:
        self.vectors = vectors
        self.offsets = np.array([0, len(vectors)])

    def rows_of(self, _: Ids) -> Array:
        """Return the vectors, float64."""
        return self.vectors


def sum_max_sim(queries: Array, passages: Array, of_query: Ids, of_passage: Ids) -> Array:
    """Return Σ_i max_j q_i · p_j of each query with each passage, float64; 0 for a query without tokens.

    Every passage has tokens.

    Args:
        queries, passages: vectors of their tokens end to end, shape (tokens, dim).
        of_query, of_passage: how many tokens each has, shape (queries,) and (passages,).
    Returns:
        Shape (queries, passages).
    """
    starts = of_passage.cumsum() - of_passage
    nearest = np.maximum.reduceat(queries @ passages.T, starts, axis=1)
    sums = np.zeros((len(of_query), len(of_passage)))
    queries_with_tokens = np.flatnonzero(of_query)  # reduceat cannot sum empty ranges
    if len(queries_with_tokens):
        starts = (of_query.cumsum() - of_query)[queries_with_tokens]
        sums[queries_with_tokens] = np.add.reduceat(nearest, starts, axis=0)
    return sums


class TokenSearch:
    """Search all passages exactly; queries are named by their numbers."""

    def __init__(
        self,
        passages: MappedTexts,
        queries: MappedTexts | OneQuery,
        order: PassageOrder,
        same_token: bool = False,
    ) -> None:
        self.passages = passages
        self.order = order
        self.sum_nearest = sum_same_tokens if same_token else sum_max_sim
        self.lengths = np.diff(passages.offsets)
        self.everything = np.flatnonzero(self.lengths)
        self.set_queries(queries)

    def set_queries(self, queries: MappedTexts | OneQuery) -> None:
        """Set the queries to search for from now on."""
        self.queries = queries
        self.counts = np.diff(queries.offsets)
        # the number of queries whose products with passages are in memory at once
        tokens_at_once = PRODUCTS // TOKENS_PER_BLOCK
        if self.sum_nearest is sum_same_tokens:
            tokens_at_once *= 4  # this function computes far fewer products
        self.step = max(1, tokens_at_once // int(self.counts.max(initial=1)))

    def search(self, queries: Ids, depth: int) -> BestPassages:
        """Return the best passages of queries."""
        best = BestPassages(len(queries), min(depth, len(self.lengths)))
        for first in range(0, len(queries), self.step):
            at = slice(first, first + self.step)
            self.score(best, at, queries[at], self.everything)
        return best

    def score(self, best: BestPassages, at: slice, queries: Ids, passages: Ids) -> None:
        """Merge the scores of queries with ascending passages into the rows `at` of `best`."""
        vectors = self.queries.rows_of(queries)
        tokens = self.counts[queries]
        ends = self.lengths[passages].cumsum()
        cuts = np.searchsorted(
            ends, np.arange(TOKENS_PER_BLOCK, ends[-1] if len(ends) else 0, TOKENS_PER_BLOCK)
        )
        for some in np.split(passages, np.unique(cuts)):
            if len(some):
                scores = self.sum_nearest(
                    vectors, self.passages.rows_of(some), tokens, self.lengths[some]
                )
                ranks = np.broadcast_to(self.order.ranks[some], scores.shape)
                best.add(at, pack_keys(scores / self.passages.temperature, ranks))


def select_promising(scores: Array, rows: Ids, offsets: Ids, count: int) -> Ids:
    """Return up to `count` passages with the largest MaxSim, estimated from the tokens that an index found; ascending.

    For a token of the query, the index may find no token of a passage. Then the worst score among the token's hits is
    used, since a better one would have been found (as in XTR; Lee et al. 2023, arXiv:2304.01982). So every estimate
    contains the sum of the worst scores, and only the gains above them decide. Among equal passages, the first ones
    are taken.

    Args:
        scores, rows: the hits of each token of the query, shape (tokens, hits); a row of -1 is not a hit.
        offsets: where each passage's rows begin and end.
    """
    filled = rows >= 0
    gains = scores - np.where(filled, scores, np.inf).min(axis=1, keepdims=True)
    texts = np.searchsorted(offsets, rows[filled], "right") - 1
    tokens = np.nonzero(filled)[0]
    # the nearest of a passage's tokens comes first
    order = np.lexsort((-gains[filled], texts, tokens))
    first = np.flatnonzero(np.diff(texts[order], prepend=-1) | np.diff(tokens[order], prepend=-1))
    passages, numbers = np.unique(texts[order][first], return_inverse=True)
    sums = np.bincount(numbers, gains[filled][order][first])
    return np.sort(passages[np.argsort(-sums, kind="stable")[:count]])


class TokenSearcher:
    """Search through an index of tokens: it proposes passages, and MaxSim decides among the most promising.

    Args:
        index: of the passages' tokens.
        factor: the index returns `factor` times the depth for each token, and as many passages are scored.
        decode: returns the vectors that decide, from the index's codes; None: the stored vectors decide.
    """

    step = 1

    def __init__(
        self,
        search: TokenSearch,
        index: SearchedIndex,
        factor: int,
        decode: Callable[[Ids], FloatVectors] | None,
    ) -> None:
        self.token_search = search
        self.index = index
        self.factor = factor
        self.decode = decode

    def search(self, queries: Ids, depth: int) -> BestPassages:
        """Return the best passages of queries."""
        passages = self.token_search.passages
        best = BestPassages(len(queries), min(depth, len(self.token_search.lengths)))
        passages.decode = self.decode
        near = min(best.depth * self.factor, self.index.rows)
        if self.index.gpu != NONE and near > MOST_ON_GPU:
            problem = f"{near:,} tokens near each of a query's are requested of a GPU, which gives {MOST_ON_GPU:,}"
            raise UserError(
                f"maxsim: {problem}; lower rescore_factor, or set execution.index_gpu to none"
            )
        for number, query in enumerate(queries):
            tokens = self.token_search.queries.rows_of(np.array([query])).astype(np.float32)
            if not len(tokens):
                continue
            scores, rows = self.index.search(tokens, near)
            some = select_promising(scores, rows, passages.offsets, best.depth * self.factor)
            self.token_search.score(best, slice(number, number + 1), np.array([query]), some)
        return best


def open_search(job: Job[Any], same_token: bool = False) -> TokenSearch:
    """Return an exact search of a job's passages for its queries; refuse inputs that do not fit together."""
    return TokenSearch(
        *open_embeddings(job, MappedTexts), PassageOrder(job.inputs["dataset"]), same_token
    )


@compared_searches("token")
class TokenSearches:
    """The searches by late interaction that `tradeoffs` compares, for a sample of queries, given by their numbers."""

    def __init__(self, job: Job[Any]) -> None:
        self.token_search = open_search(job)
        self.queries = space_evenly(len(self.token_search.counts), job.params.queries)
        self.depth = max(job.params.k)
        self.factor = job.params.sweep.rescore_factor

    def exact(self, _: Threads) -> BestPassages:
        """Return each query's passages by exact search."""
        return self.token_search.search(self.queries, self.depth)

    def through(self, index: SearchedIndex, rescore: bool) -> TokenSearcher:
        """Return a search through an index; the stored vectors decide with `rescore`, else the index's codes."""
        if not rescore and index.gpu != NONE:
            raise UserError(
                "tradeoffs: codes of an index on GPUs cannot be read; leave false out of sweep.rescore"
            )
        return TokenSearcher(
            self.token_search, index, self.factor, None if rescore else index.decode
        )


@contextmanager
def open_token_search(
    job: Job[MaxSimParams], search: TokenSearch
) -> Iterator[TokenSearch | TokenSearcher]:
    """Yield `search`, or a search through the job's index if it has one."""
    if "index" not in job.inputs:
        yield search
        return
    params = job.params
    artifact = job.inputs["index"]
    gpu = lease_gpus(job)
    with open_threads(job.execution.workers) as threads:
        open_index = opened_index[artifact.kind]
        index = open_index(artifact, threads, gpu)
        index.tune(params.nprobe, params.ef_search)
        decode = None
        if not params.rescore:  # an index on a GPU cannot be decoded, so it is opened again
            decoder = index if gpu == NONE else open_index(artifact, threads)
            decode = decoder.decode
        yield TokenSearcher(search, index, params.rescore_factor, decode)


def run(job: Job[MaxSimParams]) -> None:
    """Search and write a run.

    Inputs: dataset, passages and queries (`token_vectors`), and optionally an `index` of the passages' tokens.
    """
    search = open_search(job, job.params.same_token)
    rows = read_embedded_rows(job, MappedTexts(job.inputs["queries"], "queries"))

    def ranked(progress: Progress) -> Iterator[RankedRows]:
        """Yield the passages of each query, best first, a group of queries at a time."""
        with open_token_search(job, search) as searcher:
            for first in range(0, len(rows), searcher.step):
                group = np.arange(first, min(first + searcher.step, len(rows)))
                yield from iterate_ranked(
                    searcher.search(group, job.params.depth), rows[group], search.order
                )
                progress.add(len(group))

    short = ShortLists(min(job.params.depth, len(search.everything)))
    with writing(job) as draft, Progress(f"maxsim {job.key}", len(rows), "queries") as progress:
        lines = write_rows(job, draft, short.count(ranked(progress)), search.order)
        draft.facts |= {"queries": len(rows), "lines": lines}
        if "index" in job.inputs:
            short.warn(job, draft, "raise rescore_factor")
