"""Which rows of a `windows` dataset are a document's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, Rows, doc_rows
from tandem.data.runs import Floats, iter_run, ranked_order, scored_depth, write_run
from tandem.data.windowing import document_of, window_id
from tandem.errors import UserError
from tandem.progress import Progress


class Spans:
    """The windows of each document: they stand together, in the documents' order. Memory: 8 bytes a document.

    Args:
        windows: the dataset of windows.
    """

    def __init__(self, windows: Collection) -> None:
        begins, before = [], 0
        for batch in windows.batches(columns=["doc_id"]):
            zeroth = pc.ends_with(batch["doc_id"], window_id("", 0))
            begins.append(np.flatnonzero(np.asarray(zeroth)) + before)
            before += batch.num_rows
        self.bounds: Rows = np.concatenate([*begins, [before]]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def sizes(self, documents: Rows) -> Rows:
        """How many windows each document has, by the documents' rows."""
        sizes: Rows = self.bounds[documents + 1] - self.bounds[documents]
        return sizes

    def rows(self, documents: Rows, most: int | None = None) -> tuple[Rows, Rows]:
        """Rows of the documents' windows, document after document.

        Args:
            documents: rows of documents, any order.
            most: the first so many of each; None for all.
        Returns:
            The windows' rows, shape (windows,), and how many each document has among them, shape (documents,).
        """
        sizes = self.sizes(documents)
        sizes = sizes if most is None else np.minimum(sizes, most)
        before = np.cumsum(sizes) - sizes
        return np.repeat(self.bounds[documents] - before, sizes) + np.arange(sizes.sum()), sizes


def require_windows(job: Job, role: str) -> None:
    """Refuse an input that was not made from the windows `job.inputs["windows"]`, and windows of other documents."""
    windows, documents = job.inputs["windows"], job.inputs["dataset"]
    cut = Path(windows.upstream.get("of", "nothing")).name
    if cut != documents.key or windows.params.get("source") != "windows":
        raise UserError(f"{job.kind}: {windows.folder} holds windows of {cut}; expected windows of {documents.key}")
    found = Path(job.inputs[role].upstream["dataset"]).name
    if found != windows.key:
        folder = job.inputs[role].folder
        raise UserError(f"{job.kind}: {role} {folder} was made from the dataset {found}; expected {windows.key}")


Array = np.ndarray[Any, np.dtype[Any]]
Method = Callable[[Array, Array, int], Array]


def first(scores: Array, starts: Array, k: int) -> Array:
    """FirstP: s(q, d) = s(q, w_0).

    Args:
        scores: of windows, float64, shape (windows,).
        starts: where each document's windows begin, rising, shape (documents,); each document has a window.
        k: of no meaning here.
    Returns:
        Shape (documents,), float64; so do the other methods.
    """
    return np.asarray(scores[starts])


def best(scores: Array, starts: Array, k: int) -> Array:
    """MaxP: s(q, d) = max_n s(q, w_n)."""
    return np.maximum.reduceat(scores, starts)


def total(scores: Array, starts: Array, k: int) -> Array:
    """SumP: s(q, d) = Σ_n s(q, w_n). Negative scores count as they are: each such window lowers the sum."""
    return np.add.reduceat(scores, starts)


def best_k(scores: Array, starts: Array, k: int) -> Array:
    """K-MaxP: the mean of a document's `k` best windows, of all it has if they are fewer. With k = 1 it is MaxP."""
    sizes = np.diff(starts, append=len(scores))
    order = np.lexsort((-scores, np.repeat(np.arange(len(starts)), sizes)))
    ranks = np.arange(len(scores)) - np.repeat(starts, sizes)
    sums = np.add.reduceat(np.where(ranks < k, scores[order], 0.0), starts)
    return np.asarray(sums / np.minimum(sizes, k))


METHODS: dict[str, Method] = {"first": first, "max": best, "sum": total, "kmax": best_k}


def aggregate(method: str, scores: Array, sizes: Array, k: int = 1) -> Array:
    """Documents' scores by a method's name.

    Args:
        method: key of `METHODS`.
        scores: of windows, document after document, shape (windows,).
        sizes: windows of each document, at least one, shape (documents,).
        k: of `kmax`.
    Returns:
        Shape (documents,), float64.
    """
    starts = np.cumsum(sizes) - sizes
    return METHODS[method](np.asarray(scores, np.float64), starts, k) if len(sizes) else np.empty(0)


Ranked = tuple[str, list[str], Floats]


def unseen(job: Job, scores: Array) -> float:
    """What a window counts that was not found, by the scores of those that were."""
    match job.params["method"]:
        case "first":
            return float("nan")
        case "max":
            return float("-inf")
        case _:
            return float(scores.min()) if job.params["missing"] == "lowest" else 0.0


def documents(job: Job, windows: list[str], scores: Array, docs: IdRows, spans: Spans) -> tuple[list[str], Floats]:
    """The documents of a query's windows and their scores, best first and at most `depth`."""
    found = [document_of(window) for window in windows]
    names = list(dict.fromkeys(name for name, _ in found))
    sizes = spans.sizes(docs.rows(names))
    begins = dict(zip(names, (np.cumsum(sizes) - sizes).tolist(), strict=True))
    laid = np.full(sizes.sum(), unseen(job, scores))
    laid[[begins[name] + number for name, number in found]] = scores
    values = aggregate(job.params["method"], laid, sizes, job.params.get("k", 1))
    told = np.flatnonzero(~np.isnan(values))
    ranked = ranked_order([names[i] for i in told], values[told])[: job.params["depth"]]
    return [name for name, _ in ranked], np.array([score for _, score in ranked], np.float32)


def aggregated(job: Job, progress: Progress, facts: dict[str, int]) -> Iterator[Ranked]:
    """(query, documents, scores) of each query; `facts` counts queries and lists that are shorter than `depth`."""
    run, docs = job.inputs["run"], doc_rows(Collection(job.inputs["dataset"]))
    spans, scored = Spans(Collection(job.inputs["windows"])), scored_depth(run)
    reachable = min(job.params["depth"], len(docs))
    for query, windows, scores in iter_run(run.path("run.trec")):
        names, values = documents(job, windows[:scored], scores[:scored], docs, spans)
        facts["queries"] += 1
        facts["shorter"] += len(names) < reachable
        progress.add(1)
        yield query, names, values


def run(job: Job) -> None:
    """Write `run.trec` over the documents of `dataset` from `run`, which is over `windows`.

    Raises:
        UserError: the windows are not the dataset's, or the run is over other ones.
    """
    require_windows(job, "run")
    facts = {"queries": 0, "shorter": 0}
    with writing(job) as draft, Progress(f"aggregate {job.key}", 0, "queries") as progress:
        lines = write_run(draft.path("run.trec"), aggregated(job, progress, facts), job.key)
        draft.facts |= {"lines": lines, **facts}
