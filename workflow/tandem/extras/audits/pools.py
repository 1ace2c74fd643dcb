"""Pools: what any system retrieved for a query, ranked by judges or by the systems' ranks; and counts over them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandem.data import statistics
from tandem.data.columns import Names
from tandem.data.rows import IdRows
from tandem.data.runs import iter_rows, require_split
from tandem.errors import UserError
from tandem.store.artifact import Artifact
from tandem.store.job import Job
from tandem.store.lineage import stage_name

Array = np.ndarray[Any, np.dtype[Any]]
Results = dict[str, Array]  # query id → rows of its passages, best first

FUSION = 60  # the constant of reciprocal rank fusion
BINS = 20


@dataclass
class Pool:
    """What is known about one query's passages; arrays have the shape (pooled,) unless another is given."""

    query: str
    rows: Array  # of the pooled passages, ascending; by falling score once they are ranked
    ranks: Array  # of each passage in each system, 0 where it was not retrieved; shape (systems, pooled)
    relevance: dict[int, int]  # judged relevance by passage row; a row that is not in it is unlabelled
    scores: Array = field(default_factory=lambda: np.empty(0, np.float32))
    best: float = float("nan")  # score of the best labelled positive that the corpus has, NaN without one

    @property
    def positives(self) -> Array:
        """Rows of the labelled positives, pooled or not."""
        return np.array([row for row, relevance in self.relevance.items() if relevance > 0], np.int64)

    @property
    def unlabelled(self) -> Array:
        """Which pooled passages have no judgement."""
        return np.array([int(row) not in self.relevance for row in self.rows], bool)

    def open(self, top: int) -> Array:
        """Which pooled passages annotators are asked about: the `top` best that are unlabelled."""
        unlabelled = self.unlabelled
        return unlabelled & (np.cumsum(unlabelled) <= top)

    def rank(self, scores: Array, best: float, docs: IdRows) -> None:
        """Give the passages their scores and sort them: falling score, then by document id."""
        ids = np.array(docs.ids(self.rows), object)
        order = sorted(range(len(ids)), key=lambda at: (-scores[at], ids[at]))
        self.rows, self.ranks, self.scores, self.best = self.rows[order], self.ranks[:, order], scores[order], best


def fused(ranks: Array) -> Array:
    """Reciprocal rank fusion (Cormack et al. 2009): Σ_systems 1 / (60 + rank), nothing where it was not retrieved.

    Ranks have the shape (systems, passages), from 1, 0 where a system did not retrieve it; scores (passages,), float32.
    """
    scores: Array = np.where(ranks > 0, 1 / (FUSION + ranks), 0.0).sum(axis=0).astype(np.float32)
    return scores


def read_run(run: Artifact, dataset: Artifact, split: str, queries: dict[str, str], depth: int) -> Results:
    """The first `depth` passages of each query of a run.

    Raises:
        UserError: a run of another split or dataset, or one without any of the queries.
    """
    require_split(run, split)
    results: Results = {}
    names = Names(dataset)
    for row, passages, _ in iter_rows(run, dataset):
        if (query := names.queries[row]) in queries:
            results[query] = passages[:depth].astype(np.uint32)
    if not results:
        raise UserError(f"{run.folder}: holds no query of split {split}; give a run of {split}")
    return results


def pools(
    results: list[Results], qrels: dict[str, dict[str, int]], queries: dict[str, str], docs: IdRows
) -> Iterator[Pool]:
    """The pool of every query, in the order of the queries; an empty one where no system retrieved anything."""
    for query in queries:
        lists = [system.get(query, np.empty(0, np.uint32)).astype(np.int64) for system in results]
        rows = np.unique(np.concatenate(lists))
        ranks = np.zeros((len(results), len(rows)), np.int32)
        for system, own in enumerate(lists):
            ranks[system, np.searchsorted(rows, own)] = np.arange(1, len(own) + 1)
        judged = qrels.get(query, {})
        at = docs.rows(list(judged), missing_ok=True).tolist()
        relevance = {row: value for row, value in zip(at, judged.values(), strict=True) if row >= 0}
        yield Pool(query, rows, ranks, relevance)


def system_names(job: Job) -> list[str]:
    """What to call the runs: their keys without digests, or the keys where two names are the same."""
    keys = [run.key for run in job.many("run")]
    names = list(map(stage_name, keys))
    return names if len(set(names)) == len(names) else keys


class Counts:
    """Counts over the pools of a split; the judges' verdict is positive above `threshold`, None without judges."""

    def __init__(self, systems: Sequence[str], top: int, threshold: float | None) -> None:
        self.systems, self.top, self.threshold = systems, top, threshold
        self.counts: Counter[str] = Counter()
        self.retrieved, self.alone = (np.zeros(len(systems), np.int64) for _ in range(2))
        self.sizes: list[int] = []
        self.scores: dict[str, list[Array]] = {"labelled positives": [], "unlabelled, asked about": []}

    def add(self, pool: Pool) -> None:
        """Count a ranked pool."""
        is_open = pool.open(self.top)
        likely, pooled = pool.scores[is_open], np.isin(pool.rows, pool.positives)
        self.sizes.append(len(pool.rows))
        self.counts["empty"] += not len(pool.rows)
        self.counts["unlabelled"] += int(pool.unlabelled.sum())
        self.counts["asked"] += int(is_open.sum())
        self.counts["positives"] += len(pool.positives)
        self.counts["with positive"] += len(pool.positives) > 0
        self.counts["pooled positives"] += int(pooled.sum())
        self.counts["above best positive"] += bool((likely > pool.best).any())  # never above NaN
        if self.threshold is not None:
            likely_positive = int((likely.astype(np.float64) > self.threshold).sum())
            self.counts["above threshold"] += likely_positive > 0
            self.counts["machine positives"] += likely_positive
        retrieved = pool.ranks > 0
        self.retrieved += retrieved.sum(axis=1)
        self.alone += (retrieved & (retrieved.sum(axis=0) == 1)).sum(axis=1)
        self.scores["labelled positives"].append(pool.scores[pooled])
        self.scores["unlabelled, asked about"].append(likely)

    def summary(self) -> dict[str, object]:
        """The counts as summary.json has them; shares are percent."""
        queries, counts = len(self.sizes), self.counts
        positives: dict[str, float | None] = {"labelled": counts["positives"], "pooled": counts["pooled positives"]}
        positives["per_query"] = _mean(counts["positives"], queries)
        summary: dict[str, object] = {
            "queries": queries,
            "without_result": counts["empty"],
            "candidates": statistics.distribution(self.sizes),
            "unlabelled": counts["unlabelled"],
            "asked": counts["asked"],
            "systems": {
                name: {"found": int(retrieved), "alone": int(alone)}
                for name, retrieved, alone in zip(self.systems, self.retrieved, self.alone, strict=True)
            },
            "positives": positives,
            "above_best_positive": _share(counts["above best positive"], counts["with positive"]),
        }
        if self.threshold is not None:
            summary["above_threshold"] = _share(counts["above threshold"], queries)
            positives["likely"] = counts["machine positives"]
            positives["per_query_with_likely"] = _mean(counts["positives"] + counts["machine positives"], queries)
        scores = {name: np.concatenate([np.empty(0, np.float32), *parts]) for name, parts in self.scores.items()}
        highest = 1.0 if self.threshold is not None else float(max(s.max(initial=0) for s in scores.values()) or 1.0)
        edges = np.linspace(0, highest, BINS + 1)
        bins = {name: np.histogram(values, edges)[0].tolist() for name, values in scores.items()}
        return summary | {"histogram": {"edges": [round(float(edge), 6) for edge in edges], **bins}}


def _mean(total: int, count: int) -> float | None:
    return round(total / count, 4) if count else None


def _share(some: int, whole: int) -> dict[str, float | None]:
    return {"queries": some, "of": whole, "percent": round(100 * some / whole, 2) if whole else None}
