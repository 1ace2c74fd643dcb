"""The ensemble of cross-encoders that ranks a pool: the mean of their probabilities (DuReader-retrieval A.1)."""

from collections.abc import Iterator, Sequence

import numpy as np

from tandem.artifact import Job
from tandem.audits.false_negatives.pool import Array, Pool
from tandem.data.rows import IdRows
from tandem.models.device import use_workers
from tandem.retrieval.pair_scores import mean_probability, open_judges


class Judge:
    """The inputs `judge.<i>` with their `judge_tokens.<i>`; pairs that were scored before are found in their stores."""

    def __init__(self, job: Job, queries: IdRows) -> None:
        use_workers(job.execution.workers)
        self.judges = open_judges(job)
        self.queries = queries

    def __call__(self, group: Sequence[Pool]) -> Iterator[tuple[Array, float]]:
        """For each pool the scores of its passages, and the best of its labelled positives, whether pooled or not.

        Yields:
            Scores of shape (pooled,), float32, and the best positive's, NaN without one.
        """
        asked = [np.concatenate([pool.rows, pool.positives]) for pool in group]
        sizes = [len(rows) for rows in asked]
        queries = np.repeat(self.queries.rows([pool.query for pool in group]), sizes)
        scores = mean_probability(self.judges, queries, np.concatenate(asked))
        for pool, mine in zip(group, np.split(scores, np.cumsum(sizes)[:-1]), strict=True):
            positives = mine[len(pool.rows) :]
            yield mine[: len(pool.rows)], float(positives.max()) if len(positives) else float("nan")
