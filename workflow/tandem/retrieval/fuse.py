"""Stages `fuse`, one run of several, query by query, and `tune_fusion`, which chooses its settings on a split."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice, pairwise, repeat
from math import fsum
from pathlib import Path
from typing import NamedTuple

import ir_measures
import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import Floats, iter_run, lists, scored_depth, write_run
from tandem.errors import UserError
from tandem.evaluation.measures import Qrels, evaluate, parse_measures, without_identical_ids
from tandem.evaluation.scores import relevance
from tandem.retrieval.fusion import Floats64, Pool, Setting, best, pool
from tandem.retrieval.inputs import require_dataset
from tandem.stages.retrieval import FuseParams, TuneFusionParams, fusion, fusion_grid
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

CHOSEN, GRID = "chosen.json", "grid.csv"
CHUNK = 1000  # queries measured together


class Span(NamedTuple):
    """Where a query's lines stand in a file: first byte, number of bytes, number of the first line."""

    start: int
    size: int
    line: int


def aligned(path: Path, places: dict[str, int]) -> Iterator[tuple[int, list[str], Floats]]:
    """(place of the query, documents, scores) of each query that a run lists, places ascending; one is held at a time.

    A file in another order is scanned once for the beginning of each query's lines, and then read query by query. A
    query that `places` lacks, or an infinite score, is a `UserError`.
    """
    spans = _scattered(path, places)
    for query, docs, scores in iter_run(path) if spans is None else _jump(path, spans):
        if query not in places:
            raise UserError(f"{path}: holds query {query}, which the split lacks; fuse runs of one split")
        if not np.isfinite(scores).all():
            raise UserError(f"{path}: query {query} has an infinite score, which cannot be added; only numbers can")
        yield places[query], docs, scores


def _scattered(path: Path, places: dict[str, int]) -> list[Span] | None:
    """The queries' lines in the order of their places; None where that is the file's order, or the file is wrong."""
    begins: list[tuple[int, int, int]] = []  # place, first byte, first line
    at, last = 0, b""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            query = line.split(maxsplit=1)[0] if line.strip() else b""
            if query != last:
                place = places.get(query.decode(errors="replace"))
                if place is None:
                    return None  # the mistake is reported where the line is read
                begins.append((place, at, number))
            at, last = at + len(line), query
    order = [place for place, _, _ in begins]
    if all(a < b for a, b in pairwise(order)) or len(set(order)) < len(order):
        return None
    ends = [start for _, start, _ in begins[1:]] + [at]
    spans = [(place, Span(start, end - start, line)) for (place, start, line), end in zip(begins, ends, strict=True)]
    return [span for _, span in sorted(spans)]


def _jump(path: Path, spans: list[Span]) -> Iterator[tuple[str, list[str], Floats]]:
    with open(path, "rb") as file:
        for span in spans:
            file.seek(span.start)
            text = file.read(span.size).decode()
            yield from lists(path, text.removesuffix("\n").split("\n"), span.line)


def pools(runs: Sequence[Artifact], queries: Sequence[str]) -> Iterator[tuple[str, Pool]]:
    """Each query that a run lists documents for, in the split's order, and its pool; two of each run are held."""
    places = {query: place for place, query in enumerate(queries)}
    scored = [scored_depth(run) for run in runs]
    streams = (
        zip(repeat(number), aligned(run.path("run.trec"), places), strict=False) for number, run in enumerate(runs)
    )
    for place, group in groupby(merge(*streams, key=place_of), key=place_of):
        columns: list[tuple[Sequence[str], Floats]] = [((), np.empty(0, np.float32))] * len(runs)
        for number, (_, docs, scores) in group:
            columns[number] = docs, scores
        yield queries[place], pool(columns, scored)


def place_of(entry: tuple[int, tuple[int, list[str], Floats]]) -> int:
    """The place of the query of (number of the run, its list)."""
    return entry[1][0]


def open_runs(job: Job[FuseParams] | Job[TuneFusionParams]) -> tuple[list[str], list[Artifact]]:
    """The ids of the split's queries, and the runs; a `UserError` where these do not fit together."""
    runs, split = job.many("run"), job.params.split
    require_dataset(job, *(f"run.{number}" for number in range(len(runs))))
    for run in runs:
        # A re-ranked run is of the split of its first stage, and its parameters do not name it.
        if (other := run.params.get("split", split)) != split:
            raise UserError(f"{run.folder}: is a run of split {other}, but split is {split}; fuse runs of one split")
    return list(Collection(job.inputs["dataset"]).queries(split)), runs


def tuned_settings(job: Job[FuseParams]) -> Setting:
    """The settings that the input `tuned` has chosen; a `UserError` unless by the same method for as many runs."""
    tuned, expected = job.inputs["tuned"], (job.params.method, len(job.many("run")))
    method = tuned.params_as(TuneFusionParams).method, sum(role.startswith("run.") for role in tuned.upstream)
    if method != expected:
        raise UserError(
            f"{tuned.folder}: was tuned for {method[0]} of {method[1]} runs, but this is {expected[0]} of "
            f"{expected[1]}; tune it for these"
        )
    setting: Setting = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return setting


def fused(source: Iterable[tuple[str, Pool]], params: FuseParams) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores) of each query, best first, as far down as `depth`."""
    score = fusion[params.method]
    for query, pooled in source:
        yield query, *best(pooled.docs, score(pooled, params), params.depth)


def run(job: Job[FuseParams]) -> None:
    """Write run.trec: the `depth` best documents of each query by the fused score, ties by document id.

    Inputs: dataset; the runs `run.0`, `run.1`, …; `tuned` (a `tune_fusion`), with the settings that were tuned. A query
    that no run lists documents for has no line.
    """
    queries, runs = open_runs(job)
    tuned = tuned_settings(job) if "tuned" in job.inputs else {}
    params = job.params.model_copy(update=tuned)
    with writing(job) as draft, Progress(f"fuse {job.key}", len(queries), "queries") as progress:

        def counted() -> Iterator[tuple[str, list[str], Floats]]:
            for ranked in fused(pools(runs, queries), params):
                yield ranked
                progress.add(1)

        lines = write_run(draft.path("run.trec"), counted(), job.key)
        if not lines:
            raise UserError(f"fuse {job.key}: none of the runs holds a line; the first is {runs[0].folder}")
        draft.facts |= {"queries": progress.done, "lines": lines, **({"tuned": tuned} if tuned else {})}


def run_tuning(job: Job[TuneFusionParams]) -> None:
    """Write grid.csv, every setting with its value, and chosen.json, the best one.

    Inputs: dataset, `run.0`, `run.1`, …. A setting's value is the mean of the measure over the queries that the stage
    `score` counts, of the lists that the stage `fuse` writes. Of equally good settings the first of the grid is chosen:
    the most even weights, the constant named first. Memory: 8 bytes a setting and query.
    """
    params = job.params
    (measure,) = parse_measures([params.measure])
    queries, runs = open_runs(job)
    relevant = relevance(job.inputs, params.split, [measure], params.ignore_identical_ids)
    grid = fusion_grid[params.method](len(runs), params)
    base = FuseParams(method=params.method, normalize=params.normalize, depth=params.depth, split=params.split)
    rows = {query: row for row, query in enumerate(relevant.queries)}
    values = np.zeros((len(grid), len(rows)))
    source = (entry for entry in pools(runs, queries) if entry[0] in rows)
    with writing(job) as draft, Progress(f"tune_fusion {job.key}", len(rows), "queries") as progress:
        while group := list(islice(source, CHUNK)):
            at = [rows[query] for query, _ in group]
            for number, setting in enumerate(grid):
                tried = base.model_copy(update=setting)
                values[number, at] = measured(tried, group, relevant.qrels, measure, params.ignore_identical_ids)
            progress.add(len(group))
        means = [fsum(row) / len(rows) for row in values]
        first = means.index(max(means))
        with open(draft.path(GRID), "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([*flat(grid[0]), params.measure])
            table.writerows([*flat(setting).values(), mean] for setting, mean in zip(grid, means, strict=True))
        write_json(draft.path(CHOSEN), grid[first])
        draft.facts |= {"settings": len(grid), "chosen": grid[first], "value": means[first], "queries": len(rows)}


def measured(
    params: FuseParams,
    group: list[tuple[str, Pool]],
    qrels: Qrels,
    measure: ir_measures.Measure,
    ignore_identical_ids: bool,
) -> Floats64:
    """A measure's value of each query of a group, fused by one setting; shape (queries,)."""
    # Below the cutoff nothing counts; where a query's own id is left out, one more document moves up.
    deepest = min(measure.params.get("cutoff", params.depth) + ignore_identical_ids, params.depth)
    ranked = fused(group, params.model_copy(update={"depth": deepest}))
    run = without_identical_ids(ranked) if ignore_identical_ids else ranked
    values: Floats64 = evaluate([measure], qrels, run, [query for query, _ in group]).values[:, 0]
    return values


def flat(setting: Setting) -> dict[str, float]:
    """The numbers of a setting by name, those of a list numbered: `weights.0`, `weights.1`, …."""
    numbers: dict[str, float] = {}
    for name, value in setting.items():
        if isinstance(value, tuple):
            numbers |= {f"{name}.{at}": number for at, number in enumerate(value)}
        else:
            numbers[name] = value
    return numbers
