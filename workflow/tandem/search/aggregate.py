"""Stage `aggregate`: a run over windows becomes a run over their documents, query by query.

A window that was not found scores no more than the lowest one that was. That decides nothing in MaxP, and FirstP leaves
out documents whose first window was not found; in SumP and K-MaxP such windows count 0 or that lowest score.
"""

from collections.abc import Iterator

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, doc_rows
from tandem.data.runs import Floats, iter_run, ranked_order, scored_depth, write_run
from tandem.data.windowing import document_of
from tandem.search.aggregation import Array, aggregate
from tandem.search.windows import Spans, require_windows
from tandem.store.job import Job, writing

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
