"""Scores of a table's rows, query by query, with intervals and tests of the systems searched in one place."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.data.columns import Floats64
from tandem.errors import UserError
from tandem.evaluation.layouts import Layout, PlannedRow, System, name_system
from tandem.evaluation.measure_names import is_share
from tandem.evaluation.scores import list_measures, read_aligned, read_scores
from tandem.evaluation.significance import (
    bootstrap_mean,
    compute_margins,
    run_seeded_test,
)
from tandem.report.results import Origin
from tandem.stages import KINDS
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.lineage import BuiltStage, open_upstream, walk

TRAINING_STAGES = ("training", "checkpoint")  # what artifacts of stages that train hold
# Number of a system's trainings → warning. With two, their only difference may be small by chance.
_FEW_SEEDS = {
    1: "p is of one training of a system and counts the chance of the queries alone, not that of the training; name "
    "three `seeds`, and no seed of its own",
    2: "p is of two trainings of a system, which hardly tell how far trainings lie apart, and errs towards no "
    "difference; name three `seeds`, and no seed of its own",
}


def open_score_artifact(folder: str, run: str = "") -> Artifact:
    """Return a score artifact, verified.

    A `UserError` unless it is of the current version and scores the run with the key `run`, if that is passed.
    """
    artifact = open_artifact(Path(folder), "score")
    manifest = artifact.manifest
    if manifest.key != artifact.key:
        raise UserError(
            f"{artifact.folder}: its manifest is of {manifest.key}; delete the folder and run again"
        )
    if manifest.version != KINDS["score"].version:
        now = KINDS["score"].version
        raise UserError(
            f"{artifact.folder}: was made by version {manifest.version} of score, now {now}; run again"
        )
    scored_run = Path(artifact.upstream.get("run", "")).name
    if run and scored_run != run:
        problem = f"{artifact.folder}: scores run {scored_run}, but planned is {run}"
        raise UserError(f"{problem}; a table never mixes generations")
    return artifact


def run_folder(scores: Artifact) -> str:
    """Return the folder of the run that was scored; for a group of datasets, the folder of the scores themselves."""
    return scores.upstream.get("run") or str(scores.folder)


def _open_run(scores: Artifact) -> Artifact:
    return open_upstream(scores).get("run", scores)


def name_unit(scores: Artifact) -> str:
    """Return the unit that a mean is over: queries, or datasets for a group, whose members count alike."""
    return "queries" if "run" in scores.upstream else "datasets"


def describe_origin(scores: Artifact) -> Origin:
    """Return where scores come from, by their manifest and that of their run."""
    run = _open_run(scores)
    manifest = run.manifest
    how = (
        manifest.commit,
        manifest.dirty,
        manifest.finished,
        manifest.machine.node,
        manifest.seconds,
    )
    return Origin(scores.key, run.key, run_folder(scores), *how)


@dataclass(frozen=True)
class ScoredRow:
    """Describe a score artifact and the row of the table plan that it belongs to."""

    row: PlannedRow
    artifact: Artifact

    @property
    def system(self) -> System:
        """Return the row of the table."""
        return self.row.id

    @property
    def place(self) -> tuple[str, str, str]:
        """Column, dataset and split: scores with the same place can be compared query by query."""
        return self.row.column, self.row.dataset, self.row.split

    @property
    def labels(self) -> str:
        """Return the key of the corrected labels; empty for the dataset's own."""
        return Path(self.artifact.upstream.get("labels", "")).name


def collect_lines(stages: Iterable[BuiltStage], fact: str = "warnings") -> list[str]:
    """Return the warnings (or `notes`) in the manifests of stages, each once, after the stage's kind and name."""
    facts = ((f"{stage.kind} {stage.name}", stage.artifact.manifest.facts) for stage in stages)
    return list(
        dict.fromkeys(f"{name}: {line}" for name, own in facts for line in own.get(fact, ()))
    )


def warn_of_few_seeds(systems: Collection[Iterable[Artifact]]) -> list[str]:
    """Return a warning about p if a system has fewer than three trainings; systems without training do not count.

    Args:
        systems: the scores of each system, one for each seed; they are the same ones if no seed changes its training.
    """
    # Only of the runs: the training of a judge whose labels score them is not a training of theirs.
    runs = map(_open_run, chain.from_iterable(systems))
    trained: set[str] = set()  # keys of stages that descend from a training
    for key, stage in walk(runs).items():
        if stage.declared.holds in TRAINING_STAGES or trained.intersection(stage.upstream.values()):
            trained.add(key)
    counts = []
    for scores in systems:
        counts.append(len({score.key for score in scores if _open_run(score).key in trained}))
    fewest = min(filter(None, counts), default=0)
    return [_FEW_SEEDS[fewest]] if fewest in _FEW_SEEDS else []


def read_scored(rows: Sequence[PlannedRow]) -> list[ScoredRow]:
    """Return the score artifacts of rows, verified; a `UserError` for a row that occurs twice or has another split."""
    scored: list[ScoredRow] = []
    seen = set()
    for row in rows:
        artifact = open_score_artifact(row.scores, row.run)
        split = str(artifact.params["split"])
        if row.split not in ("", split):
            raise UserError(
                f"{artifact.folder}: was scored on split {split}, but planned is {row.split}"
            )
        if (row.id, row.column, row.seed) in seen:
            raise UserError(
                f"rows: {name_system(row.id)} is there twice; each system and first stage once"
            )
        seen.add((row.id, row.column, row.seed))
        changes = {"split": split, "collection": row.collection or row.dataset}
        scored.append(ScoredRow(row.model_copy(update=changes), artifact))
    return scored


@dataclass(frozen=True)
class ScoreBlock:
    """Hold the systems that are compared query by query, since they searched in one place; in the layout's order."""

    place: tuple[str, str, str]  # column, dataset and split
    systems: list[System]
    scored: list[list[ScoredRow]]  # for each system, its scores by seed
    measures: list[str]  # measures that all systems have
    values: Floats64  # of each seed and query, shape (seeds, systems, queries, measures)
    low: Floats64  # bounds of the bootstrap interval, shape (systems, measures)
    high: Floats64
    # tested system → p of the test against its baseline, by measure, uncorrected
    p: dict[System, Floats64]
    # tested system → half the width of the 95 % interval of the difference, by measure
    margins: dict[System, Floats64]
    # system → the first one with the same scores: another name of the same run, or itself
    originals: dict[System, System]

    @property
    def queries(self) -> int:
        """Return how many queries were scored."""
        return int(self.values.shape[2])


class Position(NamedTuple):
    """Describe where a table's number stands: its block of scores, and system and measure within it."""

    block: ScoreBlock
    system: int
    measure: int

    @property
    def mean(self) -> float:
        """The mean over queries and seeds."""
        return float(self.block.values[:, self.system, :, self.measure].mean())


def compute_differences(
    values: Floats64, systems: Sequence[System], pairs: Collection[tuple[System, System]]
) -> Floats64:
    """Return the values of pairs' first systems minus those of the second, shape (seeds, queries, pairs · measures).

    `values` have the shape (seeds, systems, queries, measures).
    """
    own, bases = ([systems.index(pair[at]) for pair in pairs] for at in (0, 1))
    differences = (values[:, own] - values[:, bases]).transpose(0, 2, 1, 3)
    return differences.reshape(*differences.shape[:2], len(own) * values.shape[3])


def read_blocks(scored: Sequence[ScoredRow], layout: Layout) -> list[ScoreBlock]:
    """Read the scores of one place, a block for each set of systems that have the same measures.

    If corrected labels leave other queries with a relevant passage, the scores by each sort of labels have blocks of
    their own.

    Raises: see `read_block`.
    """
    by_labels: dict[str, list[ScoredRow]] = {}
    for score in scored:
        by_labels.setdefault(score.labels, []).append(score)
    queries = {tuple(read_scores(own[0].artifact, [])[0]) for own in by_labels.values()}
    if len(queries) > 1:
        return [block for own in by_labels.values() for block in read_blocks(own, layout)]

    systems_by_measure: dict[str, set[System]] = {}
    for score in scored:
        for measure in list_measures(score.artifact):
            systems_by_measure.setdefault(measure, set()).add(score.system)
    measures_by_systems: dict[frozenset[System], list[str]] = {}
    for measure, systems in systems_by_measure.items():
        measures_by_systems.setdefault(frozenset(systems), []).append(measure)
    return [
        read_block([score for score in scored if score.system in systems], layout, measures)
        for systems, measures in measures_by_systems.items()
    ]


def read_block(scored: Sequence[ScoredRow], layout: Layout, measures: Sequence[str]) -> ScoreBlock:
    """Read some measures of one place, of every seed.

    Raises:
        UserError: a system lacks a seed that another has, or systems were scored on different queries.
    """
    seeds = list(dict.fromkeys(score.row.seed for score in scored))
    by_seed = {(score.system, score.row.seed): score for score in scored}
    present = [row.id for row in layout.rows if any(score.system == row.id for score in scored)]
    for system in present:
        for seed in seeds:
            if (system, seed) not in by_seed:
                raise UserError(
                    f"rows: {name_system(system)} has no scores of seed {seed}; every row needs every seed"
                )
    read = [
        read_aligned([by_seed[system, seed].artifact for system in present], measures)
        for seed in seeds
    ]
    if any(queries != read[0][0] for queries, _ in read):
        folder = by_seed[present[0], seeds[0]].artifact.folder
        raise UserError(f"{folder}: seeds were scored on different queries")
    values = np.stack([values for _, values in read])  # (seeds, systems, queries, measures)
    by_scores: dict[tuple[str, ...], System] = {}
    originals: dict[System, System] = {}
    for system in present:
        keys = tuple(by_seed[system, seed].artifact.key for seed in seeds)
        originals[system] = by_scores.setdefault(keys, system)
    # Two runs are tested once, whatever their names and whichever is the baseline; no run is tested against itself.
    tested: dict[System, System] = {}
    compared = {frozenset([original]) for original in by_scores.values()}
    for row in layout.rows:
        if row.id in originals and row.baseline in originals and not row.hidden:
            pair = frozenset([originals[row.id], originals[row.baseline]])
            if pair not in compared:
                tested[row.id] = row.baseline
                compared.add(pair)
    differences = compute_differences(values, present, tested.items())
    means = values.mean(axis=0).transpose(1, 0, 2).reshape(values.shape[2], -1)
    # One bootstrap for systems and differences: the queries drawn are the same.
    bounds = np.stack(bootstrap_mean(np.hstack([means, differences.mean(axis=0)])))
    low, high = bounds[:, : means.shape[1]].reshape(2, len(present), len(measures))
    by_test = (len(tested), len(measures))
    p = run_seeded_test(differences)
    halves = compute_margins(differences, *bounds[:, means.shape[1] :])
    return ScoreBlock(
        scored[0].place,
        present,
        [[by_seed[system, seed] for seed in seeds] for system in present],
        [*measures],
        values,
        low,
        high,
        p=dict(zip(tested, p.reshape(by_test), strict=True)),
        margins=dict(zip(tested, halves.reshape(by_test), strict=True)),
        originals=originals,
    )


def scale_value(value: float, measure: str) -> float:
    """Return a mean, or a difference of means, as tables have it: shares in percent, gains and counts as they are.

    It is rounded to four decimals; noise in a sum's last bits cannot tip the rounding.
    """
    factor = 100 if is_share(measure) else 1
    return round(round(factor * value, 9), 4) + 0.0  # of -0.0 and 0.0 the sum is 0.0
