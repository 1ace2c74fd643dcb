"""Aggregate scores of windows to scores of long documents. Stage `aggregate`: aggregate a run over windows.

FirstP, MaxP, SumP: Dai & Callan (2019). K-MaxP-Avg: Chen et al. (ICIP at TREC 2020). Each takes the scores of the
windows of many documents, document after document and each document's windows in order, and each document's first row.
"""

from collections.abc import Iterator

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.long_documents.cutting import split_window_id
from tandem.contrib.long_documents.document_tokens import DocumentSpans, require_windows
from tandem.contrib.long_documents.options import AggregateParams
from tandem.data.collection import Collection
from tandem.data.columns import Floats
from tandem.data.rows import IdRows, index_passages
from tandem.data.runs import get_scored_depth, iter_run, order_by_score, write_run
from tandem.errors import UserError
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_numbers
from tandem.stages.retrieval import aggregation
from tandem.store.job import Job, writing


@aggregation("first")
def take_first(scores: Array, starts: Array, k: int) -> Array:
    """FirstP: s(q, d) = s(q, w_0). Windows have `scores` (float64), documents `starts` (int64); K-MaxP uses `k`."""
    return np.asarray(scores[starts])


@aggregation("max")
def take_maximum(scores: Array, starts: Array, k: int) -> Array:
    """MaxP: s(q, d) = max_n s(q, w_n)."""
    return np.maximum.reduceat(scores, starts)


@aggregation("sum")
def add_windows(scores: Array, starts: Array, k: int) -> Array:
    """SumP: s(q, d) = Σ_n s(q, w_n). Negative scores are not changed: each such window lowers the sum."""
    return np.add.reduceat(scores, starts)


@aggregation("kmax")
def average_best(scores: Array, starts: Array, k: int) -> Array:
    """K-MaxP: the mean of a document's `k` best windows, or of all windows if it has fewer. With k = 1 it is MaxP."""
    sizes = np.diff(starts, append=len(scores))
    documents = np.repeat(np.arange(len(starts)), sizes)
    order = np.lexsort((-scores, documents))  # by document, then by falling score
    ranks = np.arange(len(scores)) - np.repeat(starts, sizes)
    best_scores = np.where(ranks < k, scores[order], 0.0)
    sums = np.add.reduceat(best_scores, starts)
    return np.asarray(sums / np.minimum(sizes, k))


def aggregate_windows(name: str, scores: Array, sizes: Array, k: int = 1) -> Array:
    """Return documents' scores by a method of the registry, float64, shape (documents,).

    `scores` are of windows, document after document; `sizes` are the documents' numbers of windows, at least 1.

    Raises:
        UserError: a plugin's method does not return a finite number for each document.
    """
    if not len(sizes):
        return np.empty(0)
    starts = np.cumsum(sizes) - sizes
    values = aggregation[name](np.asarray(scores, np.float64), starts, k)
    if name == "first":  # NaN if a run lacks a document's first window
        return np.asarray(values)
    try:
        return require_numbers(values, len(sizes), f"aggregation {name}")
    except UserError as error:
        raise UserError(f"{error} documents") from None


def score_documents(
    params: AggregateParams, windows: list[str], scores: Array, docs: IdRows, spans: DocumentSpans
) -> tuple[list[str], Floats]:
    """Return the documents of a query's windows and their scores, best first and at most `depth`."""
    parts = [split_window_id(window) for window in windows]
    names = list(dict.fromkeys(name for name, _ in parts))
    sizes = spans.count_windows(docs.rows(names))
    starts = np.cumsum(sizes) - sizes
    start_of = dict(zip(names, starts.tolist(), strict=True))

    # `missing` is the score of a window that was not retrieved.
    if params.method == "first":
        missing = np.nan
    elif params.method == "max":
        missing = -np.inf
    else:
        missing = scores.min() if params.missing == "lowest" else 0.0
    all_scores = np.full(sizes.sum(), missing)
    all_scores[[start_of[name] + number for name, number in parts]] = scores

    values = aggregate_windows(params.method, all_scores, sizes, params.k)
    known = np.flatnonzero(~np.isnan(values))
    ranked = order_by_score([names[row] for row in known], values[known])[: params.depth]
    docs_of_query = [name for name, _ in ranked]
    return docs_of_query, np.array([score for _, score in ranked], np.float32)


def run(job: Job[AggregateParams]) -> None:
    """Write a run over the documents of `dataset`, aggregated from `run`, a run over `windows`."""
    require_windows(job, "run")
    source = job.inputs["run"]
    docs = index_passages(Collection(job.inputs["dataset"]))
    spans = DocumentSpans(Collection(job.inputs["windows"]))
    scored = get_scored_depth(source)
    facts = {"queries": 0, "shorter": 0}  # lists that are shorter than `depth`

    def aggregate(progress: Progress) -> Iterator[tuple[str, list[str], Floats]]:
        """Yield (query, documents, scores) of each query, counted in `facts`."""
        for query, windows, scores in iter_run(source, job.inputs["windows"]):
            names, values = score_documents(
                job.params, windows[:scored], scores[:scored], docs, spans
            )
            facts["queries"] += 1
            facts["shorter"] += len(names) < min(job.params.depth, len(docs))
            progress.add(1)
            yield query, names, values

    with writing(job) as draft, Progress(f"aggregate {job.key}", 0, "queries") as progress:
        lines = write_run(job, draft, aggregate(progress), docs)
        draft.facts |= {"lines": lines, **facts}
