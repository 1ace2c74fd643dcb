"""One query's pool: what any system found, ranked by the judges, or by the systems' ranks where there is no judge."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandem.data.rows import IdRows
from tandem.data.runs import iter_run, ranked_order
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.job import Job

Array = np.ndarray[Any, np.dtype[Any]]
Found = dict[str, Array]  # query id → rows of its passages, best first

FUSION = 60  # the constant of reciprocal rank fusion


@dataclass
class Pool:
    """What is known about one query's passages; arrays have the shape (pooled,) unless said otherwise.

    Attributes:
        query: its id.
        rows: rows of the pooled passages, ascending; sorted by falling score once they are ranked.
        ranks: rank of each passage in each system, 0 where it was not found; shape (systems, pooled).
        relevance: judged relevance by passage row; a row that is not in it is unlabelled.
        scores: what ranks them.
        best: score of the best labelled positive that the corpus has, NaN without one.
    """

    query: str
    rows: Array
    ranks: Array
    relevance: dict[int, int]
    scores: Array = field(default_factory=lambda: np.empty(0, np.float32))
    best: float = float("nan")

    @property
    def positives(self) -> Array:
        """Rows of the labelled positives, pooled or not."""
        return np.array([row for row, relevance in self.relevance.items() if relevance > 0], np.int64)

    @property
    def unlabelled(self) -> Array:
        """Which pooled passages have no judgement."""
        return np.array([int(row) not in self.relevance for row in self.rows], bool)

    def asked(self, top: int) -> Array:
        """Which pooled passages annotators are asked about: the `top` best that are unlabelled."""
        unlabelled = self.unlabelled
        return unlabelled & (np.cumsum(unlabelled) <= top)

    def rank(self, scores: Array, best: float, docs: IdRows) -> None:
        """Give the passages their scores and sort them: falling score, then by document id."""
        ids = np.array(docs.ids(self.rows), object)
        order = sorted(range(len(ids)), key=lambda at: (-scores[at], ids[at]))
        self.rows, self.ranks, self.scores, self.best = self.rows[order], self.ranks[:, order], scores[order], best


def fused(ranks: Array) -> Array:
    """Reciprocal rank fusion (Cormack et al. 2009): Σ_systems 1 / (60 + rank), nothing where it was not found.

    Args:
        ranks: shape (systems, passages), from 1; 0 where a system did not find it.
    Returns:
        Shape (passages,), float32.
    """
    made: Array = np.where(ranks > 0, 1 / (FUSION + ranks), 0.0).sum(axis=0).astype(np.float32)
    return made


def read_run(run: Artifact, split: str, queries: dict[str, str], depth: int, docs: IdRows) -> Found:
    """The first `depth` passages of each query of a run.

    Raises:
        UserError: a run of another split, one without any of the queries, or a passage that the corpus lacks.
    """
    searched = run.params.get("split", split)
    if searched != split:
        raise UserError(f"{run.folder}: is a run of split {searched}, but split is {split}; give a run of {split}")
    found: Found = {}
    for query, ids, scores in iter_run(run.path("run.trec")):
        if query in queries:
            found[query] = docs.rows([doc for doc, _ in ranked_order(ids, scores)[:depth]]).astype(np.uint32)
    if not found:
        raise UserError(f"{run.path('run.trec')}: holds no query of split {split}; give a run of {split}")
    return found


def pools(
    found: list[Found], qrels: dict[str, dict[str, int]], queries: dict[str, str], docs: IdRows
) -> Iterator[Pool]:
    """The pool of every query, in the order of the queries; an empty one where no system found anything."""
    for query in queries:
        lists = [one.get(query, np.empty(0, np.uint32)).astype(np.int64) for one in found]
        rows = np.unique(np.concatenate(lists))
        ranks = np.zeros((len(found), len(rows)), np.int32)
        for system, mine in enumerate(lists):
            ranks[system, np.searchsorted(rows, mine)] = np.arange(1, len(mine) + 1)
        judged = qrels.get(query, {})
        at = docs.rows(list(judged), missing_ok=True).tolist()
        relevance = {row: told for row, told in zip(at, judged.values(), strict=True) if row >= 0}
        yield Pool(query, rows, ranks, relevance)


def system_names(job: Job) -> list[str]:
    """What to call the runs: their keys without digests, or the keys where two are called alike."""
    keys = [run.key for run in job.many("run")]
    names = [key.rpartition("-")[0] or key for key in keys]
    return names if len(set(names)) == len(names) else keys
