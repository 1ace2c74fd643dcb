"""Stage `false_negatives`: unlabelled passages that may be relevant.

DuReader-retrieval §2.3 and A.1: the union of five systems' top 50 is ranked by the mean of four cross-encoders, and
people label the top 5. A pool holds what any system retrieved for a query, ranked by judges or by the systems' ranks.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress, warn
from tandem.contrib.audits.options import FalseNegativesParams, JudgeLlmParams
from tandem.contrib.audits.sheets import write_pool_sheets
from tandem.data import statistics
from tandem.data.collection import QUERIES, Collection
from tandem.data.columns import DatasetNames
from tandem.data.rows import IdRows, index_passages, index_queries
from tandem.data.runs import iter_rows, require_run_split, require_split_queries
from tandem.data.splits import draw_subset
from tandem.errors import UserError
from tandem.extras.judgements import read_judgements
from tandem.retrieval.exact import Array
from tandem.retrieval.inputs import require_dataset
from tandem.stages.base import Json
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing
from tandem.store.lineage import stage_name

if TYPE_CHECKING:
    from tandem.negatives.judging import Calibration

Results = dict[str, Array]  # query id → rows of its passages, best first

_FUSION_CONSTANT = 60  # the constant of reciprocal rank fusion
_BINS = 20
_NOTHING_TO_CALIBRATE = (
    "no labelled positive says what their scores mean, and verdicts say little, of cross-encoders that have only "
    "learned to order lists"
)
_QUERIES_PER_GROUP = 32  # queries judged together: a line of progress after each
POOL_SCHEMA = pa.schema([
    ("query_id", pa.string()), ("doc_id", pa.string()), ("rank", pa.int32()), ("score", pa.float32()),
    ("systems", pa.list_(pa.string())), ("relevance", pa.int32()), ("asked", pa.bool_()),
])  # fmt: skip


@dataclass
class Pool:
    """What is known about one query's passages; arrays have the shape (pooled,) unless another is stated."""

    query: str
    rows: Array  # of the pooled passages: ascending, or by falling score after ranking
    # rank of each passage in each system, 0 where it was not retrieved; shape (systems, pooled)
    ranks: Array
    # judged relevance by passage row; a row without an entry is unlabelled
    relevance: dict[int, int]
    scores: Array = field(default_factory=lambda: np.empty(0, np.float32))
    # score of the best labelled positive in the corpus, NaN without one
    best: float = float("nan")

    @property
    def positives(self) -> Array:
        """Return the rows of the labelled positives, pooled or not."""
        return np.array(
            [row for row, relevance in self.relevance.items() if relevance > 0], np.int64
        )

    @property
    def unlabelled(self) -> Array:
        """Return a mask of the pooled passages without a judgement."""
        return np.array([int(row) not in self.relevance for row in self.rows], bool)

    def mask_asked(self, top: int, labelled: bool) -> Array:
        """Return a mask of the passages that annotators are asked about: the `top` best unlabelled ones.

        With `labelled`, these are the `top` best of all.
        """
        eligible = np.ones(len(self.rows), bool) if labelled else self.unlabelled
        return eligible & (np.cumsum(eligible) <= top)

    def rank(self, scores: Array, best: float, docs: IdRows) -> None:
        """Store the passages' scores and sort the passages by falling score, then by document id."""
        ids = np.array(docs.ids(self.rows), object)
        order = sorted(range(len(ids)), key=lambda at: (-scores[at], ids[at]))
        self.rows, self.ranks, self.scores, self.best = (
            self.rows[order],
            self.ranks[:, order],
            scores[order],
            best,
        )


# yields the scores of each pool's passages, and the score of its best positive
Rank = Callable[[Sequence[Pool]], Iterable[tuple[Array, float]]]


def run(job: Job[FalseNegativesParams]) -> None:
    """Pool the systems' results, rank them and write what annotators need.

    Inputs: dataset; `run.<i>`; `judge.<i>` and `judge_tokens.<i>` (cross-encoders; passages are ranked by their mean
    probability, which `params.calibrate` calibrates first, see `JudgedRanking.calibrate`).
    Without judges, reciprocal rank fusion of the runs ranks, and there is no verdict.
    Writes pool.parquet, queries.parquet (query_id, split: the queries that were audited), sheet.csv and sheet.html (to
    be filled in, for `relabel`), and summary.json.
    """
    params, runs = job.params, job.many("run")
    judges = [model.key for model in job.many("judge")]
    if not runs:
        raise UserError("false_negatives: no run; give at least one as run.0")
    require_dataset(
        job, *(role for role in sorted(job.inputs) if role.startswith(("run.", "judge_tokens.")))
    )
    collection = Collection(job.inputs["dataset"])
    docs, texts = index_passages(collection), collection.queries(params.split)
    chosen = draw_subset(dict.fromkeys(texts, params.split), {params.split: params.queries})
    queries = {query: text for query, text in texts.items() if query in chosen}
    results = [read_run(run, collection, queries, params, docs) for run in runs]
    names = [stage_name(run.key) for run in runs]
    if len(set(names)) < len(names):
        names = [run.key for run in runs]

    judged = read_judgements(collection, params.split)

    def gather() -> Iterator[Pool]:
        """Yield the pools; they are read twice if they calibrate the judges."""
        return gather_pools(results, judged, queries, docs)

    ranking = choose_ranking(job, index_queries(collection), gather)
    counts = PoolStatistics(
        names, params.top, params.threshold if judges else None, params.labelled
    )
    sheet_rows: list[pa.Table] = []
    with writing(job) as draft, pq.ParquetWriter(draft.path("pool.parquet"), POOL_SCHEMA) as writer:
        pools = gather()
        with Progress(f"false_negatives {job.key}", len(queries), "queries") as progress:
            while group := list(islice(pools, _QUERIES_PER_GROUP)):
                for pool, (scores, best) in zip(group, ranking.rank(group), strict=True):
                    pool.rank(scores, best, docs)
                    counts.add(pool)
                progress.add(len(group))
                rows = list_pool_rows(group, names, docs, params.top, params.labelled)
                writer.write_table(rows)
                on_sheet = rows.filter(rows["asked"])
                sheet_rows.append(
                    on_sheet.select(["query_id", "doc_id", "score", "rank", "relevance"])
                )

        pairs = pa.concat_tables(sheet_rows)
        write_pool_sheets(
            draft, pairs, queries, collection, job.key, ranking.scored_by, params.labelled
        )
        looked_at = {"query_id": list(queries), "split": [params.split] * len(queries)}
        pq.write_table(pa.table(looked_at), draft.path(QUERIES))
        summary = counts.summarise()
        write_json(
            draft.path("summary.json"),
            {
                "split": params.split,
                "scored_by": ranking.scored_by,
                "judges": judges,
                **summary,
                **params.model_dump(include={"depth", "top", "threshold"}),
            },
        )
        draft.facts |= {
            "queries": summary["queries"],
            "asked": summary["asked"],
            "scored_by": ranking.scored_by,
            **ranking.facts,
        }
        for line in ranking.doubts:
            warn(job, draft, line)


@dataclass(frozen=True)
class Ranking:
    """How pools are ranked: the ranking itself, facts for the manifest, and warnings."""

    rank: Rank
    scored_by: str
    facts: Json = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def choose_ranking(
    job: Job[FalseNegativesParams], queries: IdRows, gather: Callable[[], Iterator[Pool]]
) -> Ranking:
    """Return the ranking by the judges, calibrated if requested; without judges that by fused ranks."""
    judges = ", ".join(model.key for model in job.many("judge"))
    if not judges:
        scored_by = f"reciprocal rank fusion (k = {_FUSION_CONSTANT})"
        return Ranking(partial(map, _rank_by_fusion), scored_by)
    rank = JudgedRanking(job, queries)
    scored_by = f"mean probability of {judges}"
    if not job.params.calibrate:
        return Ranking(rank, scored_by)
    calibration = rank.calibrate(gather())
    if calibration is None:
        return Ranking(rank, scored_by, doubts=(f"{_NOTHING_TO_CALIBRATE}: {judges}",))
    return Ranking(rank, f"calibrated {scored_by}", {"calibration": asdict(calibration)})


def read_run(
    run: Artifact,
    collection: Collection,
    queries: dict[str, str],
    params: FalseNegativesParams | JudgeLlmParams,
    docs: IdRows,
) -> Results:
    """Read the first `depth` passages of each query in `queries` from a run; a query that it lacks has no entry.

    Passages that scores leave out do not count: those graded `EXCLUDED` and, if so configured, the query's own.

    Raises:
        UserError: the run is of another dataset or another split, or all its lines are of another split's queries.
    """
    split = params.split
    require_run_split(run, split)
    dataset = collection.artifact
    names = DatasetNames(dataset)
    left_out = {query: list(grades) for query, grades in collection.excluded(split).items()}
    if params.ignore_identical_ids:
        for query in queries:
            left_out.setdefault(query, []).append(query)

    results: Results = {}
    for row, passages, _ in iter_rows(run, dataset):
        query = names.queries[row]
        if query in queries:
            if query in left_out:
                rows = docs.rows(left_out[query], missing_ok=True)
                passages = passages[~np.isin(passages, rows)]
            results[query] = passages[: params.depth].astype(np.uint32)
    if not results:
        require_split_queries(run, collection, split)
    return results


def gather_pools(
    results: list[Results], qrels: dict[str, dict[str, int]], queries: dict[str, str], docs: IdRows
) -> Iterator[Pool]:
    """Yield the pool of every query, in the order of the queries; empty if no system retrieved anything."""
    for query in queries:
        lists = [system.get(query, np.empty(0, np.uint32)).astype(np.int64) for system in results]
        rows = np.unique(np.concatenate(lists))
        ranks = np.zeros((len(results), len(rows)), np.int32)
        for system, retrieved in enumerate(lists):
            ranks[system, np.searchsorted(rows, retrieved)] = np.arange(1, len(retrieved) + 1)

        judged = qrels.get(query, {})
        # -1 if the corpus lacks it
        judged_rows = docs.rows(list(judged), missing_ok=True).tolist()
        relevance = {
            row: value for row, value in zip(judged_rows, judged.values(), strict=True) if row >= 0
        }
        yield Pool(query, rows, ranks, relevance)


def fuse_ranks(ranks: Array) -> Array:
    """Fuse reciprocal ranks (Cormack et al. 2009): Σ_systems 1 / (60 + rank), 0 for a system that lacks the passage.

    Ranks have the shape (systems, passages), from 1, 0 if a system lacks the passage; scores (passages,), float32.
    """
    scores: Array = (
        np.where(ranks > 0, 1 / (_FUSION_CONSTANT + ranks), 0.0).sum(axis=0).astype(np.float32)
    )
    return scores


def _rank_by_fusion(pool: Pool) -> tuple[Array, float]:
    """Return fused scores of the pooled passages, and of the best positive: 0 if not retrieved, NaN without one."""
    scores, positives = fuse_ranks(pool.ranks), pool.positives
    if not len(positives):
        return scores, float("nan")
    return scores, float(scores[np.isin(pool.rows, positives)].max(initial=0))


class JudgedRanking:
    """Ranks pools by the judges' mean probability (DuReader-retrieval A.1): inputs `judge.<i>` and `judge_tokens.<i>`.

    The best positive is scored even if it is not pooled. Scores that were computed before come from their stores.
    """

    def __init__(self, job: Job[FalseNegativesParams], queries: IdRows) -> None:
        # The judges bring torch, which takes seconds to import.
        from tandem.models.device import use_workers
        from tandem.retrieval.pair_scores import open_judges

        use_workers(job.execution.workers)
        self.judges = open_judges(job)
        self.queries = queries
        self.calibration: Calibration | None = None

    def calibrate(self, pools: Iterator[Pool]) -> "Calibration | None":
        """Calibrate the judges' scores on the labelled positives and all other passages; see `fit_line`.

        A judge that has only learned to order lists has no score that means "relevant". Here a probability of 1/2 means
        that as many labelled positives as other passages have such a score. None if either kind is missing.
        """
        from tandem.negatives.judging import Calibration, fit_line
        from tandem.retrieval.pair_scores import average_logits

        positives = [np.empty(0, np.float32)]
        others = [np.empty(0, np.float32)]
        while group := list(islice(pools, _QUERIES_PER_GROUP)):
            logits = average_logits(self.judges, *self._list_pairs(group))
            for pool, own in zip(group, self._split(group, logits), strict=True):
                is_other = ~np.isin(pool.rows, pool.positives)
                others.append(own[: len(pool.rows)][is_other])
                positives.append(own[len(pool.rows) :])
        right = np.concatenate(positives)
        wrong = np.concatenate(others)
        if len(right) and len(wrong):
            slope, intercept = fit_line(right, wrong)
            # `fit_line` gives both kinds the same weight, but a pool has many passages for each positive
            intercept += math.log(len(right) / len(wrong))
            self.calibration = Calibration(slope, intercept, len(right), len(wrong))
        return self.calibration

    def __call__(self, group: Sequence[Pool]) -> Iterator[tuple[Array, float]]:
        """Yield, for each pool, the judges' probabilities of its passages, and that of its best positive."""
        from tandem.negatives.judging import judge_calibrated

        scores = judge_calibrated(self.judges, self.calibration, *self._list_pairs(group))
        for pool, own in zip(group, self._split(group, scores), strict=True):
            positives = own[len(pool.rows) :]
            yield own[: len(pool.rows)], float(positives.max()) if len(positives) else float("nan")

    def _list_pairs(self, group: Sequence[Pool]) -> tuple[Array, Array]:
        """Return query row and passage row of each judged pair: each pool's passages, then its positives."""
        passages = [np.concatenate([pool.rows, pool.positives]) for pool in group]
        queries = self.queries.rows([pool.query for pool in group])
        return np.repeat(queries, [len(rows) for rows in passages]), np.concatenate(passages)

    def _split(self, group: Sequence[Pool], values: Array) -> list[Array]:
        """Return each pool's values, from values in the order of `_list_pairs`."""
        sizes = [len(pool.rows) + len(pool.positives) for pool in group]
        return np.split(values, np.cumsum(sizes)[:-1])


def list_pool_rows(
    group: list[Pool], names: list[str], docs: IdRows, top: int, labelled: bool
) -> pa.Table:
    """Return ranked pools as rows of `POOL_SCHEMA`, query after query."""
    columns: dict[str, list[object]] = {name: [] for name in POOL_SCHEMA.names}
    for pool in group:
        columns["query_id"] += [pool.query] * len(pool.rows)
        columns["doc_id"] += docs.ids(pool.rows)
        columns["rank"] += range(1, len(pool.rows) + 1)
        columns["score"] += pool.scores.tolist()
        columns["systems"] += [
            [names[at] for at in np.flatnonzero(column)] for column in pool.ranks.T
        ]
        columns["relevance"] += [pool.relevance.get(int(row)) for row in pool.rows]
        columns["asked"] += pool.mask_asked(top, labelled).tolist()
    return pa.Table.from_pydict(columns, POOL_SCHEMA)


class PoolCounts(NamedTuple):
    """The counts of one pool."""

    passages: int
    unlabelled: int
    positives: int  # labelled, pooled or not
    is_better: bool  # whether a passage that is asked about scores higher than all positives
    likely: int  # passages asked about that score above the threshold


class PoolStatistics:
    """Counts over the pools of a split; the judges' verdict is positive above `threshold`; None without judges."""

    def __init__(
        self, systems: Sequence[str], top: int, threshold: float | None, labelled: bool
    ) -> None:
        self.systems = systems
        self.top = top
        self.threshold = threshold
        self.labelled = labelled
        self.asked = 0
        self.pools: list[PoolCounts] = []
        self.retrieved, self.alone = (np.zeros(len(systems), np.int64) for _ in range(2))
        self.scores: dict[str, list[Array]] = {
            "labelled positives": [],
            "unlabelled, asked about": [],
        }

    def add(self, pool: Pool) -> None:
        """Count a ranked pool."""
        positives, is_retrieved = pool.positives, pool.ranks > 0
        is_asked = pool.mask_asked(self.top, self.labelled)
        self.asked += int(is_asked.sum())
        asked_scores = pool.scores[is_asked & pool.unlabelled]
        likely = 0
        if self.threshold is not None:
            likely = int((asked_scores.astype(np.float64) > self.threshold).sum())

        counts = PoolCounts(
            passages=len(pool.rows),
            unlabelled=int(pool.unlabelled.sum()),
            positives=len(positives),
            is_better=bool((asked_scores > pool.best).any()),  # false if it is NaN
            likely=likely,
        )
        self.pools.append(counts)
        self.retrieved += is_retrieved.sum(axis=1)
        self.alone += (is_retrieved & (is_retrieved.sum(axis=0) == 1)).sum(axis=1)
        self.scores["labelled positives"].append(pool.scores[np.isin(pool.rows, positives)])
        self.scores["unlabelled, asked about"].append(asked_scores)

    def summarise(self) -> dict[str, object]:
        """Return the counts in the form of summary.json; shares are percent."""
        queries = len(self.pools)
        sizes = [pool.passages for pool in self.pools]
        labelled = sum(pool.positives for pool in self.pools)
        scores = {
            name: np.concatenate([np.empty(0, np.float32), *parts])
            for name, parts in self.scores.items()
        }
        pooled = len(scores["labelled positives"])

        positives = {
            "labelled": labelled,
            "pooled": pooled,
            "per_query": _average(labelled, queries),
        }
        systems = {}
        for name, retrieved, alone in zip(
            self.systems, self.retrieved.tolist(), self.alone.tolist(), strict=True
        ):
            systems[name] = {"found": retrieved, "alone": alone}
        is_better = sum(pool.is_better for pool in self.pools)
        summary: dict[str, object] = {
            "queries": queries,
            "without_result": sizes.count(0),
            "candidates": statistics.describe_distribution(sizes),
            "unlabelled": sum(pool.unlabelled for pool in self.pools),
            "asked": self.asked,
            "systems": systems,
            "positives": positives,
            "above_best_positive": _describe_share(
                is_better, sum(pool.positives > 0 for pool in self.pools)
            ),
        }

        if self.threshold is not None:
            likely = sum(pool.likely for pool in self.pools)
            summary["above_threshold"] = _describe_share(
                sum(pool.likely > 0 for pool in self.pools), queries
            )
            positives |= {
                "likely": likely,
                "per_query_with_likely": _average(labelled + likely, queries),
            }

        highest = 1.0  # the highest probability
        if self.threshold is None:
            highest = float(max(values.max(initial=0) for values in scores.values()) or 1.0)
        edges = np.linspace(0, highest, _BINS + 1)
        histogram: dict[str, object] = {"edges": [round(float(edge), 6) for edge in edges]}
        for name, values in scores.items():
            histogram[name] = np.histogram(values, edges)[0].tolist()
        return {**summary, "histogram": histogram}


def _average(total: int, count: int) -> float | None:
    return round(total / count, 4) if count else None


def _describe_share(some: int, whole: int) -> dict[str, float | None]:
    return {
        "queries": some,
        "of": whole,
        "percent": round(100 * some / whole, 2) if whole else None,
    }
