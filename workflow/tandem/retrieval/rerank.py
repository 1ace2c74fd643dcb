"""Stage `rerank`: cross-encoders reorder the top of a run; the documents below keep their order."""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import join_contents
from tandem.data.columns import DatasetNames, RankedRows
from tandem.data.rows import Rows
from tandem.data.runs import append_below, iter_rows, write_rows
from tandem.models.device import use_workers
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import (
    require_dataset,
    require_numbers,
    require_run_depth,
)
from tandem.retrieval.pair_scores import (
    PairScores,
    Requests,
    average_logits,
    open_judges,
    require_tokens,
    score_shard,
)
from tandem.stages.retrieval import RerankParams, pair_scorer
from tandem.store.job import Job, writing

PAIRS_PER_LOOKUP = 1 << 20  # pairs looked up and scored together

RankedDocuments = tuple[int, Rows]  # a query's row and its documents' rows, best first


class Reranking:
    """Score the top of a run's lists and reorder it; packages extend this class."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job  # its parameters: `RerankParams`, or a package's
        self.names = DatasetNames(job.inputs["dataset"])

    @property
    def lists_per_group(self) -> int:
        """Return how many lists are looked up and scored together, about `PAIRS_PER_LOOKUP` pairs."""
        depth: int = self.job.params.depth
        return PAIRS_PER_LOOKUP // depth

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the texts of the queries."""
        return self.names.collection.query_texts()

    def iterate_groups(self) -> Iterator[list[RankedDocuments]]:
        """Yield lists of the input run, `lists_per_group` at a time."""
        run = iter_rows(self.job.inputs["run"], self.job.inputs["dataset"])
        source = ((query, rows) for query, rows, _ in run)
        while group := list(islice(source, max(1, self.lists_per_group))):
            yield group

    def list_tops(self, group: list[RankedDocuments]) -> tuple[Array, Array]:
        """Return query row and document row of the pairs of each list's first `depth` documents, (pairs,) each."""
        tops = [ranked[: self.job.params.depth] for _, ranked in group]
        queries = np.array([query for query, _ in group])
        return np.repeat(queries, [len(top) for top in tops]), np.concatenate(tops)

    def list_pairs(self, group: list[RankedDocuments]) -> tuple[Array, Array]:
        """Return the pairs to score, as rows of the token ids of queries and of texts, (pairs,) each."""
        return self.list_tops(group)

    def score(
        self, group: list[RankedDocuments], judges: list[PairScores], progress: Progress
    ) -> Array:
        """Return the scores of the lists' first `depth` documents, float32: the mean of the models' logits."""
        if self.job.params.scorer:
            scores = score_texts(self.job, group, self.names, self.texts)
            progress.add(len(scores))
            return scores
        return average_logits(judges, *self.list_pairs(group), progress)

    def check_tokens(self, roles: list[str]) -> None:
        """Refuse token ids that are not of the texts to score."""
        for role in roles:
            model = "model" if role == "tokens" else role.replace("judge_tokens", "judge")
            require_tokens(self.job, role, model)

    def rerank(self, judges: list[PairScores], progress: Progress) -> Iterator[RankedRows]:
        """Yield (the query's row, its documents' rows, their scores), a bounded group of queries at a time.

        The first `depth` documents have the models' scores, the others whole numbers that fall from below the lowest.
        """
        depth = self.job.params.depth
        for group in self.iterate_groups():
            scores = self.score(group, judges, progress)
            ends = np.cumsum([min(depth, len(ranked)) for _, ranked in group])
            for (query, ranked), own in zip(group, np.split(scores, ends[:-1]), strict=True):
                yield query, ranked, append_below(own, len(ranked))

    def open_judges(self) -> list[PairScores]:
        """Return the scores of each cross-encoder; refuse inputs that do not fit together (see `run`)."""
        job = self.job
        require_dataset(job, "run")
        self.check_tokens(sorted(role for role in job.inputs if "tokens" in role))
        require_run_depth(job, job.params.depth)
        if "model" not in job.inputs:
            return open_judges(job)
        params = job.params
        model = job.inputs["model"]
        return [PairScores(model, job.inputs["tokens"], params.precision, params.batch_tokens)]

    def request_pairs(self) -> Requests:
        """Yield the pairs that the stage scores."""
        judges = self.open_judges()
        for group in self.iterate_groups():
            pairs = self.list_pairs(group)
            for judge in judges:
                yield judge, *pairs

    def write(self) -> None:
        """Write the run of the stage."""
        job = self.job
        use_workers(job.execution.workers)
        judges = self.open_judges()
        pairs = sum(len(self.list_pairs(group)[0]) for group in self.iterate_groups())
        total = max(1, len(judges)) * pairs
        with writing(job) as draft, Progress(f"{job.kind} {job.key}", total, "pairs") as progress:
            lines = write_rows(job, draft, self.rerank(judges, progress))
            draft.facts |= {"lines": lines, "scored": sum(judge.computed for judge in judges)}


def score_texts(
    job: Job[RerankParams],
    group: list[RankedDocuments],
    names: DatasetNames,
    texts: dict[str, str],
) -> Array:
    """Return the scores of the lists' first `depth` documents by a plugin's scorer, float32, shape (pairs,)."""
    params = job.params
    score = pair_scorer[params.scorer or ""]
    tops = [(names.queries[query], names.of(ranked[: params.depth])) for query, ranked in group]
    passages = names.collection.texts({doc for _, top in tops for doc in top})
    parts = []
    for query, top in tops:
        own = score(texts[query], [join_contents(*passages[doc]) for doc in top], **params.options)
        parts.append(
            require_numbers(own, len(top), f"{job.kind}: {params.scorer}, passages of {query}")
        )
    return np.concatenate(parts).astype(np.float32)


def run_shard(job: Job[RerankParams]) -> dict[str, object]:
    """Score a share of the pairs."""
    return score_shard(job, lambda whole: Reranking(whole).request_pairs())


def run(job: Job[RerankParams]) -> None:
    """Score the top `depth` of `run` and write a run as deep as the run.

    Inputs: dataset, run, and a cross-encoder `model` with its `tokens`, or several (`judge.0` with `judge_tokens.0`, …)
    whose scores are averaged; no model if a plugin scores.
    """
    Reranking(job).write()
