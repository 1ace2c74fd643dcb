"""The stage `fuse`: one run of several, query by query."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.fusion import METHODS, Settings
from tandem.fusion.pool import Pool, best, pools
from tandem.search.partners import require_dataset
from tandem.store.artifact import Artifact
from tandem.store.job import Job, writing

CHOSEN = "chosen.json"


def run(job: Job) -> None:
    """Write run.trec: the `depth` best documents of each query by the fused score, ties by document id.

    Params: method, depth, split, and the method's settings (rrf: `k`; weighted: `normalize`, `weights`). Inputs:
    dataset; the runs `run.0`, `run.1`, …; `tuned` (a `tune_fusion`), which has the settings that were tuned. A query
    that no run has an answer for has no line. Memory: ids of the split's queries, and two queries of each run.

    Raises:
        UserError: runs of another dataset or split; settings tuned for other runs.
    """
    queries, runs = opened(job)
    tuned = chosen(job) if "tuned" in job.inputs else {}
    with writing(job) as draft, Progress(f"fuse {job.key}", len(queries), "queries") as progress:
        lists = fused(pools(runs, queries), {**job.params, **tuned})
        lines = write_run(draft.path("run.trec"), counted(lists, progress), job.key)
        if not lines:
            raise UserError(f"fuse {job.key}: none of the runs holds a line; the first is {runs[0].folder}")
        draft.facts |= {"queries": progress.done, "lines": lines, **({"tuned": tuned} if tuned else {})}


def opened(job: Job) -> tuple[list[str], list[Artifact]]:
    """The ids of the split's queries, and the runs; a `UserError` where these do not fit together."""
    runs, split = job.many("run"), job.params["split"]
    require_dataset(job, *(f"run.{number}" for number in range(len(runs))))
    for one in runs:
        # A re-ranked run is of the split of what it re-ranks, and does not say so itself.
        if (found := one.params.get("split", split)) != split:
            raise UserError(f"{one.folder}: is a run of split {found}, but split is {split}; fuse runs of one split")
    return list(Collection(job.inputs["dataset"]).queries(split)), runs


def chosen(job: Job) -> Settings:
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
