"""Similarity of queries by cross-encoders: the mean probability that one query answers for the other."""

from dataclasses import replace
from pathlib import Path

from tandem.artifact import Artifact, Job
from tandem.audits.similar.asked import Asked
from tandem.audits.similar.nearest import Array
from tandem.models.device import use_workers
from tandem.progress import Progress
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, mean_probability


class QueryPairs(PairScores):
    """A cross-encoder's logits for pairs of queries: the second query takes the passage's place.

    Kept beside its scores of queries with passages, for whichever threshold or depth asks again.
    """

    def __init__(self, model: Artifact, tokens: Artifact, precision: str, batch_tokens: int) -> None:
        super().__init__(model, tokens, precision, batch_tokens)
        self.tokens = replace(self.tokens, passages=self.tokens.queries)
        self.longest = 2 * tokens.params["query_length"] + self.tokens.template.extra[1]

    def _place(self, model: Artifact, tokens: Artifact) -> Path:
        """A store of its own: a row of its second column is a query's."""
        return super()._place(model, tokens) / "queries"


def judged(job: Job, others: Asked, train: Asked, pairs: tuple[Array, Array]) -> Array:
    """Mean probability over the inputs `judge.0`, … of pairs (dev or test query, training query).

    Args:
        job: the stage, with `judge_tokens.<i>` for each judge; params precision and batch_tokens.
        others: dev and test queries.
        train: training queries.
        pairs: positions in both, each of shape (pairs,).
    Returns:
        Shape (pairs,), float32.
    """
    models, tokens = job.many("judge"), job.many("judge_tokens")
    require_dataset(job, *(f"judge_tokens.{i}" for i in range(len(models))))
    use_workers(job.execution.workers)
    how = job.params["precision"], job.params["batch_tokens"]
    judges = [QueryPairs(model, made, *how) for model, made in zip(models, tokens, strict=True)]
    with Progress(f"similar_queries {job.key}", len(pairs[0]) * len(judges), "pairs") as progress:
        return mean_probability(judges, others.rows[pairs[0]], train.rows[pairs[1]], progress)
