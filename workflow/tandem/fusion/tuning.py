"""The stage `tune_fusion`: the settings of a fusion that are best on a split, measured as the stage `score` does."""

import csv
from itertools import islice
from math import fsum

import ir_measures
import numpy as np

from tandem.cluster.progress import Progress
from tandem.fusion import GRIDS, Settings
from tandem.fusion.pool import Floats64, Pool, pools
from tandem.fusion.stage import CHOSEN, fused, opened
from tandem.scoring.measures import Qrels, evaluate, parse_measures
from tandem.scoring.relevance import relevance
from tandem.scoring.stage import others
from tandem.store.files import write_json
from tandem.store.job import Job, writing

CHUNK = 1000  # queries measured together
GRID = "grid.csv"


def run(job: Job) -> None:
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
    queries, runs = opened(job)
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
    run = others(lists) if itself else lists
    values: Floats64 = evaluate([measure], qrels, run, [query for query, _ in group]).values[:, 0]
    return values


def flat(settings: Settings) -> dict[str, float]:
    """The numbers that a setting consists of by name, those of a list numbered: `weights.0`, `weights.1`, …."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    return {
        f"{name}.{at}" if isinstance(settings[name], list) else name: number
        for name, numbers in lists.items()
        for at, number in enumerate(numbers)
    }
