"""A run read in the order of its split's queries, in whatever order its file lists them."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np

from tandem.artifact import Artifact, Job, write_json, writing
from tandem.data.collection import Collection
from tandem.data.runs import Floats, iter_run, lists, write_run
from tandem.errors import UserError
from tandem.progress import Progress
from tandem.retrieval.fusion import GRIDS, METHODS, Floats64, Pool, Settings, best, pools
from tandem.retrieval.inputs import require_dataset
from tandem.scoring.measures import Qrels, evaluate, parse_measures
from tandem.scoring.relevance import relevance
from tandem.scoring.stage import others


class Span(NamedTuple):
    """Where a query's lines stand in a file: first byte, number of bytes, number of the first line."""

    start: int
    size: int
    line: int


def aligned(path: Path, places: dict[str, int]) -> Iterator[tuple[int, list[str], Floats]]:
    """(place of the query, documents, scores) of each query that a run lists, places ascending; one is held at a time.

    A file in another order is looked through once to see where each query's lines begin, and then read query by query.

    Args:
        path: the run's file.
        places: query → its place in the split.
    Raises:
        UserError: as `iter_run`; a query that is not of the split; a score that is infinite.
    """
    spans = _scattered(path, places)
    for query, docs, scores in iter_run(path) if spans is None else _jumping(path, spans):
        if query not in places:
            raise UserError(f"{path}: holds query {query}, which the split lacks; fuse runs of one split")
        if not np.isfinite(scores).all():
            raise UserError(f"{path}: query {query} has an infinite score, which cannot be added; only numbers can")
        yield places[query], docs, scores


def _scattered(path: Path, places: dict[str, int]) -> list[Span] | None:
    """The queries' lines in the order of their places; None where that is the file's order, or the file is wrong."""
    found: list[tuple[int, int, int]] = []  # place, first byte, first line
    at, last = 0, b""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            query = line.split(maxsplit=1)[0] if line.strip() else b""
            if query != last:
                place = places.get(query.decode(errors="replace"))
                if place is None:
                    return None  # what is wrong with it is said where it is read
                found.append((place, at, number))
            at, last = at + len(line), query
    order = [place for place, _, _ in found]
    if all(a < b for a, b in pairwise(order)) or len(set(order)) < len(order):
        return None
    ends = [start for _, start, _ in found[1:]] + [at]
    spans = [(place, Span(start, end - start, line)) for (place, start, line), end in zip(found, ends, strict=True)]
    return [span for _, span in sorted(spans)]


def _jumping(path: Path, spans: list[Span]) -> Iterator[tuple[str, list[str], Floats]]:
    """`iter_run` in the order of the spans."""
    with open(path, "rb") as file:
        for span in spans:
            file.seek(span.start)
            text = file.read(span.size).decode()
            yield from lists(path, text.removesuffix("\n").split("\n"), span.line)


CHOSEN = "chosen.json"


def run(job: Job) -> None:
    """Write run.trec: the `depth` best documents of each query by the fused score, ties by document id.

    Params: method, depth, split, and the method's settings (rrf: `k`; weighted: `normalize`, `weights`). Inputs:
    dataset; the runs `run.0`, `run.1`, …; `tuned` (a `tune_fusion`), which has the settings that were tuned. A query
    that no run has an answer for has no line. Memory: ids of the split's queries, and two queries of each run.

    Raises:
        UserError: runs of another dataset or split; settings tuned for other runs.
    """
    queries, runs = open_runs(job)
    tuned = tuned_settings(job) if "tuned" in job.inputs else {}
    with writing(job) as draft, Progress(f"fuse {job.key}", len(queries), "queries") as progress:
        lists = fused(pools(runs, queries), {**job.params, **tuned})
        lines = write_run(draft.path("run.trec"), counted(lists, progress), job.key)
        if not lines:
            raise UserError(f"fuse {job.key}: none of the runs holds a line; the first is {runs[0].folder}")
        draft.facts |= {"queries": progress.done, "lines": lines, **({"tuned": tuned} if tuned else {})}


def open_runs(job: Job) -> tuple[list[str], list[Artifact]]:
    """The ids of the split's queries, and the runs; a `UserError` where these do not fit together."""
    runs, split = job.many("run"), job.params["split"]
    require_dataset(job, *(f"run.{number}" for number in range(len(runs))))
    for one in runs:
        # A re-ranked run is of the split of what it re-ranks, and does not say so itself.
        if (found := one.params.get("split", split)) != split:
            raise UserError(f"{one.folder}: is a run of split {found}, but split is {split}; fuse runs of one split")
    return list(Collection(job.inputs["dataset"]).queries(split)), runs


def tuned_settings(job: Job) -> Settings:
    """The settings that were best where they were tuned; a `UserError` unless by the same method for as many runs."""
    tuned, asked = job.inputs["tuned"], (job.params["method"], len(job.many("run")))
    found = tuned.params["method"], sum(role.startswith("run.") for role in tuned.upstream)
    if found != asked:
        told = f"{tuned.folder}: was tuned for {found[0]} of {found[1]} runs, but {asked[0]} of {asked[1]} is asked"
        raise UserError(f"{told}; tune it for these")
    settings: dict[str, Any] = json.loads(tuned.path(CHOSEN).read_text(encoding="utf-8"))
    return settings


def fused(
    source: Iterable[tuple[str, Pool]], settings: Settings, depth: int | None = None
) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores) of each query, best first, as far down as `depth`, else as the settings' `depth`."""
    score = METHODS[settings["method"]]
    for query, pool in source:
        yield query, *best(pool.docs, score(pool, settings), depth or settings["depth"])


def counted(
    lists: Iterable[tuple[str, list[str], Floats]], progress: Progress
) -> Iterator[tuple[str, list[str], Floats]]:
    """The same lists; `progress` counts them."""
    for one in lists:
        yield one
        progress.add(1)


CHUNK = 1000  # queries measured together
GRID = "grid.csv"


def run_tuning(job: Job) -> None:
    """Write grid.csv, every setting with its value, and chosen.json, the best one.

    Params: method, depth, split, measure; what is tried (rrf: a list `k`; weighted: `step`) and what stays
    (`normalize`); ignore_identical_ids (absent: false). Inputs: dataset, `run.0`, `run.1`, ….
    A setting's value is the mean of the measure over the queries that the stage `score` counts, of the lists that the
    stage `fuse` writes. Of equally good settings the first of the grid is chosen: the most even weights, the constant
    named first. Memory: 8 bytes a setting and query, and the pools of `CHUNK` queries.

    Raises:
        UserError: runs of another dataset or split; no such measure.
    """
    (measure,) = parse_measures([job.params["measure"]])
    queries, runs = open_runs(job)
    told = relevance(job, [measure])
    grid = GRIDS[job.params["method"]](len(runs), job.params)
    rows = {query: row for row, query in enumerate(told.queries)}
    values = np.zeros((len(grid), len(rows)))
    wanted = (one for one in pools(runs, queries) if one[0] in rows)
    with writing(job) as draft, Progress(f"tune_fusion {job.key}", len(rows), "queries") as progress:
        while group := list(islice(wanted, CHUNK)):
            at = [rows[query] for query, _ in group]
            for number, settings in enumerate(grid):
                values[number, at] = measured({**job.params, **settings}, group, told.qrels, measure)
            progress.add(len(group))
        means = [fsum(row) / len(rows) for row in values]
        first = means.index(max(means))
        with open(draft.path(GRID), "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([*flat(grid[0]), job.params["measure"]])
            table.writerows([*flat(settings).values(), mean] for settings, mean in zip(grid, means, strict=True))
        write_json(draft.path(CHOSEN), grid[first])
        draft.facts |= {"settings": len(grid), "chosen": grid[first], "value": means[first], "queries": len(rows)}


def measured(settings: Settings, group: list[tuple[str, Pool]], qrels: Qrels, measure: ir_measures.Measure) -> Floats64:
    """A measure's value of each query of a group, fused by one setting; shape (queries,)."""
    itself = bool(settings.get("ignore_identical_ids", False))
    # Below the cutoff nothing counts; where a query's own id is left out, one more document comes up.
    deepest = min(measure.params.get("cutoff", settings["depth"]) + itself, settings["depth"])
    lists = fused(group, settings, deepest)
    run_tuning = others(lists) if itself else lists
    values: Floats64 = evaluate([measure], qrels, run_tuning, [query for query, _ in group]).values[:, 0]
    return values


def flat(settings: Settings) -> dict[str, float]:
    """The numbers that a setting consists of by name, those of a list numbered: `weights.0`, `weights.1`, …."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    return {
        f"{name}.{at}" if isinstance(settings[name], list) else name: number
        for name, numbers in lists.items()
        for at, number in enumerate(numbers)
    }
