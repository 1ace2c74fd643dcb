"""Scores of a table's rows, query by query: the mean over seeds for tests, each seed's mean for their deviation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.errors import UserError
from tandem.evaluation.layouts import PlannedRow, System, system_name
from tandem.evaluation.measures import Floats64
from tandem.evaluation.scores import read_aligned, shared_measures
from tandem.report.results import Origin
from tandem.stages import KINDS
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.lineage import Stage, open_upstream


def open_scores(folder: str, run: str = "") -> Artifact:
    """A score artifact, verified; a `UserError` unless it is of the current version and of the key `run`, if passed."""
    artifact = open_artifact(Path(folder), "score")
    manifest = artifact.manifest
    if manifest.key != artifact.key:
        raise UserError(f"{artifact.folder}: its manifest is of {manifest.key}; delete the folder and run again")
    if manifest.version != KINDS["score"].version:
        now = KINDS["score"].version
        raise UserError(f"{artifact.folder}: was made by version {manifest.version} of score, now {now}; run again")
    scored_run = Path(artifact.upstream.get("run", "")).name
    if run and scored_run != run:
        problem = f"{artifact.folder}: scores run {scored_run}, but planned is {run}"
        raise UserError(f"{problem}; a table never mixes generations")
    return artifact


def run_folder(scores: Artifact) -> str:
    """Folder of the run that was scored; of the scores themselves for a group of datasets."""
    return scores.upstream.get("run") or str(scores.folder)


def origin(scores: Artifact) -> Origin:
    """Where scores come from, by their manifest and that of their run."""
    run = open_upstream(scores).get("run", scores)
    made = run.manifest
    return Origin(
        scores.key, run.key, run_folder(scores), made.commit, made.dirty, made.finished, made.machine.node, made.seconds
    )


@dataclass(frozen=True)
class Scored:
    """A score artifact and the row of the table plan that it belongs to."""

    row: PlannedRow
    artifact: Artifact

    @property
    def system(self) -> System:
        """The row of the table."""
        return self.row.id

    @property
    def place(self) -> tuple[str, str, str]:
        """What scores share that can be compared query by query: column, dataset and split."""
        return self.row.column, self.row.dataset, self.row.split


def collect_warnings(stages: Iterable[Stage]) -> list[str]:
    """What stages warn of in their manifests, each line once, after the stage's name."""
    lines = (f"{stage.name}: {line}" for stage in stages for line in stage.artifact.manifest.facts.get("warnings", ()))
    return list(dict.fromkeys(lines))


def read_scored(rows: Sequence[PlannedRow]) -> list[Scored]:
    """The score artifacts of rows, verified; a `UserError` for a row that is there twice or another split."""
    scored: list[Scored] = []
    seen = set()
    for row in rows:
        artifact = open_scores(row.scores, row.run)
        split = str(artifact.params["split"])
        if row.split not in ("", split):
            raise UserError(f"{artifact.folder}: was scored on split {split}, but planned is {row.split}")
        if (row.id, row.column, row.seed) in seen:
            raise UserError(f"rows: {system_name(row.id)} is there twice; each system and first stage once")
        seen.add((row.id, row.column, row.seed))
        changes = {"split": split, "collection": row.collection or row.dataset}
        scored.append(Scored(row.model_copy(update=changes), artifact))
    return scored


@dataclass(frozen=True)
class Block:
    """What is compared query by query: the systems searched in one place, in the layout's order.

    Attributes:
        scored: of each system, its scores by seed.
        measures: those that all of them have.
        values: the mean over seeds of each query's value, shape (systems, queries, measures).
        means: each seed's mean over queries, shape (seeds, systems, measures).
    """

    systems: list[System]
    scored: list[list[Scored]]
    measures: list[str]
    queries: int
    values: Floats64
    means: Floats64

    def deviation(self, system: int) -> Floats64 | None:
        """Standard deviation over seeds of a system's means (n - 1 in the denominator), shape (measures,).

        None with one seed, and for a system that no seed touches.
        """
        if len({scored.artifact.key for scored in self.scored[system]}) < 2:
            return None
        return np.asarray(self.means[:, system].std(axis=0, ddof=1))


def read_block(scored: Sequence[Scored], systems: Sequence[System]) -> Block:
    """Read the scores of one place, of every seed; `systems` is the layout's order.

    Raises:
        UserError: a system lacks a seed that another has, or systems were scored on different queries.
    """
    seeds = list(dict.fromkeys(score.row.seed for score in scored))
    present = [system for system in systems if any(score.system == system for score in scored)]
    by_seed = {(score.system, score.row.seed): score for score in scored}
    for system in present:
        for seed in seeds:
            if (system, seed) not in by_seed:
                raise UserError(f"rows: {system_name(system)} has no scores of seed {seed}; every row needs every seed")
    measures = shared_measures([score.artifact for score in scored])
    read = [read_aligned([by_seed[system, seed].artifact for system in present], measures) for seed in seeds]
    if any(queries != read[0][0] for queries, _ in read):
        folder = by_seed[present[0], seeds[0]].artifact.folder
        raise UserError(f"{folder}: seeds were scored on different queries")
    values = np.stack([values for _, values in read])  # (seeds, systems, queries, measures)
    by_system = [[by_seed[system, seed] for seed in seeds] for system in present]
    return Block(present, by_system, measures, len(read[0][0]), values.mean(axis=0), values.mean(axis=2))
