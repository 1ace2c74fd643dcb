"""Plan the rows of a layout: how each changes the configuration, and which score it shows."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from tandem.config.merging import read_yaml
from tandem.config.settings import RUN_KEYS
from tandem.errors import Unavailable, UserError
from tandem.evaluation.layouts import (
    Column,
    Layout,
    LayoutRow,
    PlannedRow,
    System,
    has_dataset,
    name_system,
)
from tandem.plan.context import plans_variant, restricts_score
from tandem.plan.dataset_stages import StandIns, splits
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.planner import Planner, Planners
from tandem.plan.reported import check_measure_names, is_measurable, measures
from tandem.registry import Registry
from tandem.stages.base import Json

_T = TypeVar("_T")
# Beginnings of the paths that decide what is audited.
_AUDITED = ("datasets.", "score.")


@dataclass(frozen=True)
class LayoutRows:
    """Plan the rows of the layout in `file`; configurations that it names are read below `root`."""

    planners: Planners
    root: Path
    file: Path
    layout: Layout

    def scored(self) -> tuple[list[tuple[PlannedRow, Stage]], list[PlannedRow]]:
        """Return the scores of rows, except quoted ones, by dataset and seed; and rows without scores, with the reason.

        Raises:
            UserError: a measure, model, split or dataset that the configuration does not have.
        """
        file = self.file
        settings = self.planners.base.settings
        measured = settings.score.measures
        for column in self.layout.columns:
            check_measure_names(f"{file}: columns", [column.measure])
            if measured and column.measure not in measured:
                raise UserError(
                    f"{file}: shows {column.measure}; add it to score.measures ({', '.join(measured)})"
                )
        self._check_trained_elsewhere()

        seeds = settings.seeds or (settings.seed,)
        scored: list[tuple[PlannedRow, Stage]] = []
        absent: list[PlannedRow] = []
        for row, group in self._places():
            try:
                scored += [self._scored(row, group, seed) for seed in seeds]
            except Unavailable as error:
                absent.append(
                    PlannedRow(
                        system=row.system,
                        first_stage=row.first_stage,
                        column=group,
                        absent=str(error),
                    )
                )
            except UserError as error:
                if not row.with_:
                    raise
                # Some lines begin with the file already.
                lines = [
                    f"{file}: {row.system}: {line.removeprefix(f'{file}: ')}"
                    for line in str(error).splitlines()
                ]
                raise UserError("\n".join(lines)) from None
        _check_first_stages(file, self.layout, scored)
        scored = _mark_equal(self.layout, scored)
        if not scored:
            reasons = "; ".join(dict.fromkeys(row.absent for row in absent))
            raise Unavailable(
                reasons or f"{file}: all rows are quoted; a table needs one with a run"
            )
        unmeasured = [column.measure for column in list_unmeasured(self.layout, scored)]
        if unmeasured and len(unmeasured) == len(self.layout.columns):
            measured = scored[0][1].values["measures"]
            raise Unavailable(
                f"{file}: none of {', '.join(unmeasured)} is measured here, but {', '.join(measured)}"
            )
        return scored, absent

    @cached_property
    def skipped(self) -> dict[str, str]:
        """Return the layout's datasets that are splits and that the searched dataset lacks, each with the reason."""
        skipped = {}
        for name, columns in self.layout.splits.items():
            searched = self._stand_ins.searched(self._resolve(name))
            known = splits(self.planners.base.ctx, searched)
            if columns.split not in (known or ()):
                have = (
                    ", ".join(sorted(known))
                    if known
                    else "splits that are not known before it is read"
                )
                skipped[name] = f"dataset {searched} has {have}, and no {columns.split}"
        return skipped

    def _scored(self, row: LayoutRow, group: str, seed: int) -> tuple[PlannedRow, Stage]:
        """Return a row's score for the columns of one dataset, with one seed; `Unavailable` if these are skipped."""
        if group in self.skipped:
            raise Unavailable(self.skipped[group])
        changes, dataset = self._changes(row, group, seed)
        planner = self.planners.of(changes)
        # Audits are of the dataset itself, from which the variant is made, and use one seed and the models of the
        # configuration, so that all rows and seeds are scored by the same labels and queries.
        base_seed = self.planners.base.settings.seed
        audited = self.planners.of(self._changes(row, group, base_seed, _AUDITED)[0])
        if row.variant:
            name = f"{dataset}-{row.variant}"
            planner = self.planners.of({**changes, "train_on": name})
            enter_variant = _find_registered(plans_variant, row.variant, str(self.file))
            enter_variant(planner.ctx, name, audited.ctx, dataset)

        stage = _score(planner, audited, row, self.layout, str(self.file), dataset)
        run = stage.upstream.get("run")
        own_changes = self._stand_ins.changed(row.with_)
        replaced = []
        for path, theirs in row.with_.items():
            if has_dataset(path) and self._stand_ins.collection(own_changes[path]) != theirs:
                replaced.append(f"{own_changes[path]} for {theirs}")
        collection = self._make_stand_ins(planner).collection(dataset)
        if group in self.layout.splits and collection == self.layout.splits[group].of:
            collection = group
        planned = PlannedRow(
            system=row.system,
            first_stage=row.first_stage,
            scores=stage.folder,
            dataset=dataset,
            split=planner.split(dataset),
            collection=collection,
            column=group,
            seed=seed,
            run=run.key if run else "",
            instead=", ".join(replaced),
        )
        return planned, stage

    @cached_property
    def _stand_ins(self) -> StandIns:
        return self._make_stand_ins(self.planners.base)

    def _make_stand_ins(self, planner: Planner) -> StandIns:
        return StandIns(planner.settings, planner.ctx.datasets, self.layout)

    def _changes(
        self, row: LayoutRow, group: str, seed: int, own: str | tuple[str, ...] = ""
    ) -> tuple[Json, str]:
        """Return the overrides of the configuration that a row's score needs, and the dataset that is searched.

        Of the row's own changes, only those whose paths begin with `own` are included.
        """
        layout = self.layout
        settings = self.planners.base.settings
        named = self._named(row, group)
        searched = self._stand_ins.searched(named)
        changes: Json = {}
        if named in layout.configs and searched == named != settings.dataset:
            own_config: Json = read_yaml(self.root / layout.configs[named])
            changes = {key: value for key, value in own_config.items() if key not in RUN_KEYS}

        dataset: str = changes.get("dataset", searched)
        if dataset != settings.dataset:
            changes["dataset"] = dataset
        if group in layout.splits:
            changes["score.split"] = layout.splits[group].split
        changed = self._stand_ins.changed(row.with_)
        if self._stand_ins.collection(dataset) == named:
            changed |= row.with_own
        changes |= {path: changed[path] for path in changed if path.startswith(own)}

        recipes = changes.get("recipes") or settings.recipes
        lacking = [name for name in layout.recipes if name not in recipes]
        if lacking:
            changes["recipes"] = [*recipes, *lacking]
        if seed != settings.seed:
            changes.setdefault("seed", seed)  # a row may have a seed of its own
        return changes, dataset

    def _named(self, row: LayoutRow, group: str) -> str:
        """Return the dataset that the layout searches for a row and the columns of one dataset."""
        return row.dataset or self._resolve(group)

    def _resolve(self, group: str) -> str:
        """Return the dataset that the layout searches for the columns of one dataset."""
        if group in self.layout.splits:
            group = self.layout.splits[group].of
        printed_on = self.layout.printed_on.dataset if self.layout.printed_on else ""
        return group or printed_on

    def _check_trained_elsewhere(self) -> None:
        """Refuse the same stand-in for two different datasets of the layout, one searched and the other trained on.

        Else a system that is zero-shot or cross-lingual in the paper would silently be trained on the searched dataset.
        """
        file = self.file
        settings = self.planners.base.settings

        def are_one(trained: str, searched: str) -> bool:
            return self._stand_ins.collection(trained) == self._stand_ins.collection(searched)

        if self.layout.trained_elsewhere and are_one(
            settings.train_on or settings.dataset, settings.dataset
        ):
            problem = f"its models come from another dataset, but {settings.dataset} is both trained on and searched"
            raise Unavailable(f"{file}: {problem}; set train_on")
        if not self.layout.printed_on:
            return
        for row, group in self._places():
            named = self._named(row, group)
            trained_on = {
                theirs for path, theirs in row.with_.items() if theirs and has_dataset(path)
            }
            for theirs in trained_on - {named}:
                trained = self._stand_ins.changed({"train_on": theirs})["train_on"]
                if are_one(trained, self._stand_ins.searched(named)):
                    both = f"{theirs}, which is trained on, and {named}, which is searched"
                    raise Unavailable(
                        f"{file}: {trained} stands in for both {both}; name two by stand_in"
                    )

    def _places(self) -> list[tuple[LayoutRow, str]]:
        """Return the rows that are scored, each with the datasets of the columns that it fills, one at a time.

        Skipped datasets are left out, except for a row that has no others, which is then absent.
        """
        groups = list(dict.fromkeys(column.dataset for column in self.layout.columns)) or [""]
        places = []
        for row in self.layout.rows:
            if not row.quoted:
                wanted = [group for group in groups if group in row.columns or not row.columns]
                measured = [group for group in wanted if group not in self.skipped]
                places += [(row, group) for group in measured or wanted]
        return places


def list_unmeasured(layout: Layout, scored: list[tuple[PlannedRow, Stage]]) -> list[Column]:
    """Return the columns of a layout that no score has a value for."""
    measured: set[tuple[str, str]] = set()  # column's dataset, measure
    for row, stage in scored:
        measured |= {(row.column, measure) for measure in stage.values["measures"]}
    return [column for column in layout.columns if (column.dataset, column.measure) not in measured]


def _mark_equal(
    layout: Layout, scored: list[tuple[PlannedRow, Stage]]
) -> list[tuple[PlannedRow, Stage]]:
    """Mark each row with the scores of an earlier row that is shown: this configuration does not distinguish them."""
    hidden = {row.id for row in layout.rows if row.hidden}
    # row, dataset of columns → scores, one a seed
    scores: dict[tuple[System, str], list[str]] = {}
    for row, stage in scored:
        if row.id not in hidden:
            scores.setdefault((row.id, row.column), []).append(stage.manifest)
    first: dict[tuple[str, ...], System] = {}
    same_as: dict[tuple[System, str], str] = {}
    for (system, column), manifests in scores.items():
        earlier = first.setdefault((column, *manifests), system)
        if earlier != system:
            same_as[system, column] = name_system(earlier)

    marked = []
    for row, stage in scored:
        other = same_as.get((row.id, row.column), "")
        marked.append((row.model_copy(update={"same_as": other}), stage))
    return marked


def _check_first_stages(file: Path, layout: Layout, scored: list[tuple[PlannedRow, Stage]]) -> None:
    """Refuse a row whose run does not re-rank the run of the row that it names as its first stage."""
    runs = {(row.id, row.column, row.seed): stage.upstream.get("run") for row, stage in scored}
    baselines = {row.id: row.baseline for row in layout.rows}
    for row, stage in scored:
        run = stage.upstream.get("run")
        first_stage = baselines[row.id]
        if not first_stage or first_stage[0] != row.first_stage:
            first_stage = (row.first_stage, "")
        first = runs.get((first_stage, row.column, row.seed))
        if not run or not first or run.declared.scoring.of != "top":
            continue
        if first not in upstream_first([run]):
            reranked = run.upstream["run"].name
            raise UserError(
                f"{file}: {row.system} re-ranks {reranked}, its first_stage is {first.name}"
            )


def _score(
    planner: Planner, audited: Planner, row: LayoutRow, layout: Layout, where: str, dataset: str
) -> Stage:
    """Return the score of a row: by the dataset's labels or corrected ones, of all queries or some."""
    planner.ctx.dataset_entry(dataset, f"{where}: dataset")
    restricted: dict[str, Stage | None] = {}
    for name in (row.labels, layout.subset):
        if name:
            restrict = _find_registered(restricts_score, name, where)
            restricted |= restrict(audited.ctx, dataset)
    more = _more_measures(planner, layout, dataset)
    by = [*measures(planner.ctx, dataset), *more] if more else None
    return planner.score(row.run, where, dataset, by, restricted)


def _find_registered(registry: Registry[_T], name: str, where: str) -> _T:
    """Return what a package has registered under a word of a layout; `Unavailable` if no package has."""
    if name not in registry:
        raise Unavailable(
            f"{where}: {registry.what} {name} comes from a package that is not installed"
        )
    return registry[name]


def _more_measures(planner: Planner, layout: Layout, dataset: str) -> list[str]:
    """Return the measures of a layout that a dataset's scores do not have, as far as runs and labels allow.

    They are the measures that a paper prints, and those that only the layout names: a usual measure that the paper does
    not print is left out if the dataset has measures of its own.
    """
    score = planner.settings.score
    if score.measures:
        return []
    ctx = planner.ctx
    have = measures(ctx, dataset)
    more: dict[str, None] = {}
    for column in layout.columns:
        measure = column.measure
        is_named = column.id in layout.printed or measure not in score.usual
        if is_named and measure not in have and is_measurable(ctx, measure, dataset):
            more[measure] = None
    return list(more)
