"""The passages that a query's negatives are drawn from: a run's, or random ones of the whole corpus."""

from collections.abc import Iterator

import numpy as np

from tandem.artifact import Job
from tandem.candidates.labels import Labels
from tandem.data.rows import IdRows
from tandem.data.runs import iter_run
from tandem.models.ragged import Ids

RANDOM = 2  # of the draw's seed, beside 0 and 1 for undenoised and denoised lists


def ranked(job: Job, labels: Labels, docs: IdRows, queries: IdRows) -> Iterator[tuple[str, list[str], Ids, Ids]]:
    """(query, ids, rows, scores) of what each query is offered, best first.

    Without the input `run`, `depth` passages drawn from the corpus for every query that has labels; they have no score.
    """
    if "run" in job.inputs:
        for query, ids, scores in iter_run(job.inputs["run"].path("run.trec")):
            yield query, ids, docs.rows(ids), scores
        return
    at = queries.rows(labels.queries)
    for query, row in zip(labels.queries, at, strict=True):
        drawn = at_random(len(docs), job.params["depth"], job.params["seed"], int(row))
        yield query, [], drawn, np.full(len(drawn), np.nan, np.float32)


def at_random(passages: int, count: int, seed: int, query: int) -> Ids:
    """`count` distinct rows of a corpus of so many passages; they follow from (seed, query) alone."""
    rng = np.random.default_rng([seed, RANDOM, query])
    return rng.choice(passages, min(count, passages), replace=False)
