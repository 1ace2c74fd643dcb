"""What is behind a row's numbers: its stages, when, where and at which commit they ran, what they differ in."""

from pathlib import Path
from typing import Any

from tandem.reporting.seeds import Scored
from tandem.store.artifact import Artifact
from tandem.store.lineage import causes, open_upstream

SHOWN = 12  # differences of a row from its neighbour


def origin(scores: Artifact) -> dict[str, Any]:
    """Where scores come from, by their manifest and that of their run: keys, folder, commit, when, where, how long."""
    run = open_upstream(scores).get("run", scores)
    manifest = run.manifest
    return {
        "scores": scores.key,
        "run": run.key,
        "folder": scores.upstream.get("run") or str(scores.folder),
        "commit": manifest.commit,
        "dirty": manifest.dirty,
        "finished": manifest.finished,
        "machine": manifest.machine.node,
        "seconds": manifest.seconds,
    }


def lineage(scored: Scored) -> dict[str, Any]:
    """Where a number of a table comes from, and what it is of."""
    of = {"column": scored.column, "dataset": scored.dataset, "split": scored.split, "seed": scored.seed}
    return of | origin(scored.artifact)


def difference(own: Artifact, other: Artifact) -> list[str]:
    """What tells the run of one score from that of another, a line for each root of it."""
    runs = [open_upstream(one).get("run") for one in (own, other)]
    if runs[0] is None or runs[1] is None:
        return []
    found = [_line(cause.stage, cause.what, cause.now, cause.before) for cause in causes(runs[0], runs[1])]
    more = [f"and {len(found) - SHOWN} more: tandem why {own.key} {other.key}"] if len(found) > SHOWN else []
    return found[:SHOWN] + more


def _line(stage: Artifact, what: str, now: str, before: str) -> str:
    """One difference: `model rocketqav2: train.lr is 1e-05, there 2e-05`."""
    kind, name = str(stage.manifest.kind), Path(stage.folder).name.rpartition("-")[0]
    return f"{kind} {name}: {what} is {now}, there {before}"
