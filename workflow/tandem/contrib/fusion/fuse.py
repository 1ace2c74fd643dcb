"""Fusion: several runs become one, query by query.

Stage `fuse` writes the fused run; `tune_fusion` chooses the settings of its method on a split. A method is a function
`@fusion(name)`, which returns documents' fused scores. A function `@fusion_grid(name)` returns the settings that tuning
tries, the preferred one first.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, combinations, islice, pairwise
from math import fsum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from tandem.cluster.progress import Progress, warn
from tandem.contrib.fusion.options import FuseParams, TuneFusionParams, fusion_grid
from tandem.data.collection import Collection
from tandem.data.columns import DatasetNames, Floats, Floats64
from tandem.data.runs import get_scored_depth, iter_rows, order_by_score
from tandem.errors import UserError
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import CHOSEN, evaluate
from tandem.evaluation.scores import read_relevance
from tandem.extras.absent_lines import AbsentLines, write_whole_run
from tandem.extras.best_setting import GRID, count_left_out, warn_undecided
from tandem.extras.normalisation import NORMALIZATIONS
from tandem.extras.tied_scores import break_ties_by_place
from tandem.retrieval.inputs import require_dataset, require_numbers
from tandem.stages.retrieval import fusion
from tandem.store.artifact import Artifact
from tandem.store.files import csv_text, write_json, write_text
from tandem.store.job import Job, writing

QUERIES_PER_CHUNK = 1000  # queries measured together
# the parameters of a method, which tuning chooses
_MethodSetting = dict[str, float | tuple[float, ...]]


@dataclass(frozen=True)
class FusionPool:
    """The documents that any run lists for a query: a row per document, a column per run.

    Attributes:
        docs: document ids, ascending.
        ranks: shape (documents, runs), from 1; infinite if a run does not list the document.
        scores: shape (documents, runs); NaN if a run does not list the document, or if its score has no meaning.
    """

    docs: list[str]
    ranks: Floats64
    scores: Floats64


def pool_lists(
    lists: Sequence[tuple[Sequence[str], Floats]], scored: Sequence[int | None] = ()
) -> FusionPool:
    """Return the pool of the lists of several runs.

    `lists` are the documents and scores of each run, in any order. `scored` is, for each run, the last rank whose score
    has a meaning (None, or no entry: all ranks).
    """
    docs = sorted(set(chain.from_iterable(listed for listed, _ in lists)))
    rows = {doc: row for row, doc in enumerate(docs)}
    ranks = np.full((len(docs), len(lists)), np.inf)
    scores = np.full((len(docs), len(lists)), np.nan)
    for column, (listed, values) in enumerate(lists):
        ranked = order_by_score(listed, values)
        rows_of_list = [rows[doc] for doc, _ in ranked]
        ranks[rows_of_list, column] = np.arange(1, len(ranked) + 1)
        deepest = scored[column] if scored else None
        scores[rows_of_list[:deepest], column] = [score for _, score in ranked[:deepest]]
    return FusionPool(docs, ranks, scores)


def sum_by_row(terms: Floats64) -> Floats64:
    """Return the sums over the runs, shape (documents,), independent of the runs' order: smaller terms come first.

    So documents with the same ranks or scores tie exactly, whichever run each comes from.
    """
    return np.asarray(np.sort(terms, axis=1).sum(axis=1))


def select_top(docs: Sequence[str], scores: Floats64, depth: int) -> tuple[list[str], Floats]:
    """Return the best `depth` documents in a run's order: by score as float32, ties by id; `docs` are ascending ids."""
    rounded = scores.astype(np.float32)
    order = np.argsort(-rounded, kind="stable")[:depth]
    return [docs[row] for row in order], rounded[order]


class RunFile:
    """Read a run query by query, whatever the order of its queries.

    Its lists are copied to a temporary file, 8 bytes per line. `places` maps each query to its row, the beginning of
    its list in the file, and the list's length.
    """

    def __init__(self, run: Artifact, names: DatasetNames, file: IO[bytes]) -> None:
        self.run = run
        self.names = names
        self.file = file
        self.absent = AbsentLines.of(run)
        self.places = {names.queries[query]: (query, 0, 0) for query in self.absent.places}
        for query, rows, scores in iter_rows(run, names.collection.artifact):
            self.places[names.queries[query]] = query, file.tell(), len(rows)
            file.write(rows.astype(np.uint32).tobytes() + scores.tobytes())

    def read(self, query: str) -> tuple[list[str], Floats]:
        """Return documents and scores of a query; none if the run lacks it. Refuse an infinite score."""
        if query not in self.places:
            return [], np.empty(0, np.float32)
        own, first, lines = self.places[query]
        self.file.seek(first)
        rows = np.fromfile(self.file, np.uint32, lines)
        scores = np.fromfile(self.file, np.float32, lines)
        if not np.isfinite(scores).all():
            problem = f"query {query} has an infinite score, which cannot be added"
            raise UserError(f"{self.run.folder}: {problem}; only numbers can")
        return self.absent.among(own, self.names.of(rows.astype(np.int64)), scores)


def iterate_pools(
    runs: Sequence[Artifact], dataset: Artifact, queries: Sequence[str], folder: Path
) -> Iterator[tuple[str, FusionPool]]:
    """Yield each query for which a run lists documents, in the split's order, and its pool.

    `folder` is for temporary files.

    Raises:
        UserError: a run has a query that the split lacks; raised at the end.
    """
    names = DatasetNames(dataset)
    scored = [get_scored_depth(run) for run in runs]
    with ExitStack() as stack:
        files = [
            RunFile(run, names, stack.enter_context(TemporaryFile(dir=folder))) for run in runs
        ]
        for query in queries:
            if any(query in file.places for file in files):
                yield query, pool_lists([file.read(query) for file in files], scored)
        known = set(queries)
        for file in files:
            for query in file.places:
                if query not in known:
                    problem = f"holds query {query}, which the split lacks"
                    raise UserError(f"{file.run.folder}: {problem}; fuse runs of one split")


def open_runs(job: Job[FuseParams] | Job[TuneFusionParams]) -> tuple[list[str], list[Artifact]]:
    """Return the ids of the split's queries, and the runs; refuse runs that do not fit together."""
    runs = job.many("run")
    split = job.params.split
    require_dataset(job, *(f"run.{number}" for number in range(len(runs))))
    for run in runs:
        # A re-ranked run has the split of its first stage, which its parameters do not name.
        other = run.params.get("split", split)
        if other != split:
            raise UserError(
                f"{run.folder}: is a run of split {other}, but split is {split}; fuse runs of one split"
            )
    return list(Collection(job.inputs["dataset"]).queries(split)), runs


def read_tuned_settings(job: Job[FuseParams]) -> _MethodSetting:
    """Return the settings that the input `tuned` has chosen.

    Raises:
        UserError: they were tuned for another method or another number of runs.
    """
    tuned = job.inputs["tuned"]
    method = job.params.method
    runs = len(job.many("run"))
    tuned_method = tuned.params_as(TuneFusionParams).method
    tuned_runs = sum(role.startswith("run.") for role in tuned.upstream)
    if (tuned_method, tuned_runs) != (method, runs):
        problem = (
            f"was tuned for {tuned_method} of {tuned_runs} runs, but this is {method} of {runs}"
        )
        raise UserError(f"{tuned.folder}: {problem}; tune it for these")
    setting: _MethodSetting = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return setting


def fuse_pools(
    source: Iterable[tuple[str, FusionPool]], params: FuseParams, progress: Progress | None = None
) -> Iterator[tuple[str, list[str], Floats]]:
    """Yield (query, documents, scores) of each query, best first, at most `depth` documents."""
    score = fusion[params.method]
    for query, pool in source:
        label = f"fuse: {params.method}, passages of {query}"
        scores = require_numbers(score(pool, params), len(pool.docs), label)
        docs, fused_scores = select_top(pool.docs, scores, params.depth)
        yield query, docs, fused_scores
        if progress:
            progress.add(1)


def run(job: Job[FuseParams]) -> None:
    """Write a run: the `depth` best documents of each query by the fused score, ties by document id.

    Inputs: dataset; the runs `run.0`, `run.1`, …; `tuned` (a `tune_fusion`) with the chosen settings, if they were
    tuned. A query for which no run lists documents has no line.
    """
    queries, runs = open_runs(job)
    tuned = read_tuned_settings(job) if "tuned" in job.inputs else {}
    with writing(job) as draft, Progress(f"fuse {job.key}", len(queries), "queries") as progress:
        source = iterate_pools(runs, job.inputs["dataset"], queries, draft.folder)
        fused = fuse_pools(source, job.params.model_copy(update=tuned), progress)
        ranked = ((query, docs, break_ties_by_place(scores)) for query, docs, scores in fused)
        lines = write_whole_run(job, draft, ranked)
        draft.facts |= {"queries": progress.done, "lines": lines}
        if tuned:
            draft.facts["tuned"] = tuned


def run_fusion_tuning(job: Job[TuneFusionParams]) -> None:
    """Write grid.csv, every setting with its value, and chosen.json, the best one.

    Inputs: dataset, `run.0`, `run.1`, …. A setting's value is the mean of the measure on the lists that the stage
    `fuse` writes, over the queries that the stage `score` counts. Among equally good settings, the first of the grid is
    chosen: the most even weights, or the constant named first. Memory: 8 bytes per setting and query.
    """
    params = job.params
    (measure,) = parse_measures([params.measure])
    queries, runs = open_runs(job)
    relevant = read_relevance(job.inputs, params.split, [measure], params.ignore_identical_ids)
    grid = fusion_grid[params.method](len(runs), params)
    # Nothing counts below the cutoff, but for each document that is left out, one more moves up.
    left_out = count_left_out(relevant.qrels, params.ignore_identical_ids)
    depth = min(measure.params.get("cutoff", params.depth) + left_out, params.depth)
    base = FuseParams(
        method=params.method, normalize=params.normalize, depth=depth, split=params.split
    )
    rows = {query: row for row, query in enumerate(relevant.queries)}
    values = np.zeros((len(grid), len(rows)))
    with (
        writing(job) as draft,
        Progress(f"tune_fusion {job.key}", len(rows), "queries") as progress,
    ):
        pools = iterate_pools(runs, job.inputs["dataset"], queries, draft.folder)
        counted = ((query, pool) for query, pool in pools if query in rows)
        while group := list(islice(counted, QUERIES_PER_CHUNK)):
            queries_of_group = [query for query, _ in group]
            rows_of_group = [rows[query] for query in queries_of_group]
            for number, setting in enumerate(grid):
                ranked = fuse_pools(group, base.model_copy(update=setting))
                of_queries = evaluate(
                    [measure], relevant.qrels, ranked, queries_of_group, params.ignore_identical_ids
                )
                values[number, rows_of_group] = of_queries.values[:, 0]
            progress.add(len(group))
        means = [fsum(row) / len(rows) for row in values]
        best = means.index(max(means))  # the first of equals
        table = (
            [*flatten_setting(setting).values(), mean]
            for setting, mean in zip(grid, means, strict=True)
        )
        write_text(draft.path(GRID), csv_text([*flatten_setting(grid[0]), params.measure], table))
        write_json(draft.path(CHOSEN), grid[best])
        draft.facts |= {
            "settings": len(grid),
            "chosen": grid[best],
            "value": means[best],
            "queries": len(rows),
        }
        for line in warn_undecided(means[best], "settings", params.measure, params.split):
            warn(job, draft, line)


def flatten_setting(setting: _MethodSetting) -> dict[str, float]:
    """Return the numbers of a setting by name; the names of a list's numbers are `weights.0`, `weights.1`, …."""
    numbers: dict[str, float] = {}
    for name, value in setting.items():
        if isinstance(value, tuple):
            numbers |= {f"{name}.{index}": number for index, number in enumerate(value)}
        else:
            numbers[name] = value
    return numbers


@fusion_grid("rrf")
def constants(runs: int, params: TuneFusionParams) -> list[_MethodSetting]:
    """Return the values of k to try, whatever the number of runs."""
    return [{"k": k} for k in params.k]


@fusion("rrf")
def rrf(pool: FusionPool, params: FuseParams) -> Floats64:
    """Fuse by reciprocal ranks: score(d) = Σ over the runs that list d of 1 / (k + rank(d)), ranks from 1.

    Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning Methods,
    SIGIR 2009; there k = 60. A run that does not list a document adds nothing.
    """
    assert params.k is not None
    return sum_by_row(1 / (params.k + pool.ranks))


@fusion_grid("weighted")
def weightings(runs: int, params: TuneFusionParams) -> list[_MethodSetting]:
    """Return weights that sum to 1, in steps of `step`: all points of a simplex grid, the most even first.

    For two runs and a step of 0.1 these are (0.5, 0.5), (0.6, 0.4), (0.4, 0.6), … (0, 1).
    """
    assert params.step is not None
    parts = round(1 / params.step)
    # Stars and bars: some of the places in a row are bars; the number of places between two bars is a run's share.
    places = parts + runs - 1
    grid = []
    for bars in combinations(range(places), runs - 1):
        edges = (-1, *bars, places)
        grid.append([right - left - 1 for left, right in pairwise(edges)])

    def order_by_evenness(shares: list[int]) -> tuple[int, list[int]]:
        """Return a sort key: more even shares come first; among equally even ones, those with a larger first share."""
        return sum(share * share for share in shares), [-share for share in shares]

    grid.sort(key=order_by_evenness)
    return [{"weights": tuple(share / parts for share in shares)} for shares in grid]


@fusion("weighted")
def weighted(pool: FusionPool, params: FuseParams) -> Floats64:
    """score(d) = Σ over the runs of w · s(d), with each run's scores s normalised per query.

    The linear combination of Fox and Shaw's CombSUM (TREC-2, 1993) with a weight per run, as Vogt and Cottrell (Fusion
    via a Linear Combination of Scores, Information Retrieval 1999) study it.
    """
    assert params.weights is not None
    normalize = NORMALIZATIONS[params.normalize]
    columns = [
        weight * normalize(scores)
        for weight, scores in zip(params.weights, pool.scores.T, strict=True)
    ]
    return sum_by_row(np.stack(columns, axis=1))
