"""Stage `rerank_windows`: cross-encoders score the windows of a run's top documents, and the scores are aggregated."""

from functools import cached_property

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.long_documents.document_tokens import DocumentSpans, require_windows
from tandem.contrib.long_documents.options import RerankWindowsParams
from tandem.contrib.long_documents.windows import aggregate_windows
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, index_queries
from tandem.retrieval import rerank
from tandem.retrieval.exact import Array
from tandem.retrieval.pair_scores import (
    PairScores,
    average_logits,
    average_probabilities,
    score_shard,
)
from tandem.store.job import Job

# the score of a window that is aggregated
_WINDOW_SCORES = {"raw": average_logits, "probability": average_probabilities}


class WindowReranking(rerank.Reranking):
    """Score the windows of each document; token ids are those of the windows."""

    def __init__(self, job: Job[RerankWindowsParams]) -> None:
        super().__init__(job)
        self.params = job.params
        self.most = 1 if job.params.method == "first" else None

    @cached_property
    def windows(self) -> Collection:
        """Return the dataset of the windows."""
        return Collection(self.job.inputs["windows"])

    @cached_property
    def spans(self) -> DocumentSpans:
        """Return the windows of each document."""
        return DocumentSpans(self.windows)

    @property
    def lists_per_group(self) -> int:
        """See `Reranking`. The estimate takes it that all documents have about as many windows."""
        pairs = self.params.depth * self.windows.passages
        return rerank.PAIRS_PER_LOOKUP * len(self.spans) // pairs

    @cached_property
    def window_queries(self) -> IdRows:
        """Return the rows of queries in the windows' dataset."""
        return index_queries(self.windows)

    def list_pairs(self, group: list[rerank.RankedDocuments]) -> tuple[Array, Array]:
        """Return the rows of the query and of the window of each scored pair, among the windows' token ids."""
        own = self.window_queries.rows([self.names.queries[query] for query, _ in group])
        owners = np.repeat(own, [len(ranked[: self.params.depth]) for _, ranked in group])
        windows, sizes = self.spans.list_windows(self.list_tops(group)[1], self.most)
        return np.repeat(owners, sizes), windows

    def score(
        self, group: list[rerank.RankedDocuments], judges: list[PairScores], progress: Progress
    ) -> Array:
        """Return the aggregated scores of the windows of the lists' first `depth` documents, float32."""
        params = self.params
        of_windows = _WINDOW_SCORES[params.scores](judges, *self.list_pairs(group), progress)
        _, sizes = self.spans.list_windows(self.list_tops(group)[1], self.most)
        return aggregate_windows(params.method, of_windows, sizes, params.k).astype(np.float32)

    def check_tokens(self, roles: list[str]) -> None:
        """Refuse token ids of texts other than the windows, and windows of other documents."""
        require_windows(self.job, *roles)


def run_shard(job: Job[RerankWindowsParams]) -> dict[str, object]:
    """Score a share of the pairs."""
    return score_shard(job, lambda whole: WindowReranking(whole).request_pairs())


def run(job: Job[RerankWindowsParams]) -> None:
    """Score the windows of the top `depth` documents of `run`, and write a run as deep as the run.

    Inputs: dataset, windows, run, and cross-encoders (`judge.0` with `judge_tokens.0`, …), whose scores are averaged.
    """
    WindowReranking(job).write()
