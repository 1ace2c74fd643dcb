"""Sweeps: the same systems at every point of a grid over the configuration's values, once for each seed.

A sweep is an entry under `sweeps:` of a configuration, or a file of config/sweeps/, which reproduces a paper's figure.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tandem.config.loading import read_section
from tandem.contrib.sweeps.options import Sweep
from tandem.errors import UserError, nearest
from tandem.plan.context import plans_view
from tandem.plan.dataset_stages import choose_dataset
from tandem.plan.graph import Stage
from tandem.plan.plan import Check, Plan, ReportPart, View
from tandem.plan.planner import Planners
from tandem.plan.reported import check_measure_names
from tandem.plan.views import name_configurations
from tandem.stages.base import Json

_Point = Json  # dotted path → value


@dataclass(frozen=True)
class PlannedScore:
    """One system at one point with one seed, and the stage that scores it."""

    point: _Point
    seed: int
    system: str
    stage: Stage


class PlannedSweep:
    """A sweep's points, the configuration at each of them, and the stages that they need.

    Args:
        where: the beginning of an error: `sweeps.<name>`, or its file.
        stand_in: whether the dataset is a paper's, for which another may stand in.
    Attributes:
        fixed: the overrides that all points share.
        values: path → its values, with the types that the configuration has.
        points: every combination of values.
        x: the path along the axis.
    Raises:
        UserError: the configuration lacks a path, value, dataset, system, measure or point.
    """

    def __init__(
        self, name: str, where: str, entry: Sweep, planners: Planners, stand_in: bool = False
    ) -> None:
        self.name = name
        self.where = where
        self.entry = entry
        self.planners = planners
        self.settings = planners.base.settings
        self.systems = entry.systems
        self.fixed = self._fixed(stand_in)
        self.values = self._read_grid()
        self.seeds = self._seeds()
        combinations = itertools.product(*self.values.values())
        self.points: list[_Point] = [
            dict(zip(self.values, values, strict=True)) for values in combinations
        ]
        # the first path that varies
        self.x = entry.x or max(self.values, key=lambda path: len(self.values[path]) > 1)
        if self.x not in self.values:
            raise UserError(f"{where}.x: is {self.x}{nearest(self.x, list(self.values))}")
        self.scored = [
            PlannedScore(point, seed, system, self._score(point, seed, run))
            for point, seed, (system, run) in itertools.product(
                self.points, self.seeds, self.systems.items()
            )
        ]
        self.baseline = self._point(entry.baseline or self.points[0], "baseline")
        self.printed = [
            {
                **printed.model_dump(mode="json"),
                "point": self._point(printed.point, f"printed.{at}.point"),
            }
            for at, printed in enumerate(entry.printed)
        ]
        self._check()

    @property
    def scores(self) -> list[str]:
        """Return the manifests of the scores."""
        return list(dict.fromkeys(scored.stage.manifest for scored in self.scored))

    def _read_grid(self) -> dict[str, list[Any]]:
        """Return the typed values along each path of the grid; refuse a value or a path that occurs twice."""
        grid: dict[str, list[Any]] = {}
        for path, values in self.entry.grid.items():
            if path in self.entry.with_:
                raise UserError(
                    f"{self.where}.grid.{path}: with has {path} too; leave one of them out"
                )
            grid[path] = [self._typed(path, value, f"grid.{path}") for value in values]
            distinct = {json.dumps(value, sort_keys=True, default=str) for value in grid[path]}
            if len(distinct) < len(values):
                raise UserError(f"{self.where}.grid.{path} names a value twice; list each once")
        return grid

    def to_json(self) -> str:
        """Return the sweep as JSON for the command `sweep`: its texts and every score's folder.

        Equal sweeps have equal JSON.
        """
        entry = self.entry
        last = self.planners.of(self._changes(self.points[-1], self.seeds[-1]))
        dataset = last.settings.dataset
        rows = [
            {
                "point": scored.point,
                "seed": scored.seed,
                "system": scored.system,
                "scores": scored.stage.folder,
            }
            for scored in self.scored
        ]
        sweep: Json = {
            "name": self.name,
            "paths": list(self.values),
            "x": self.x,
            "baseline": self.baseline,
            "printed": self.printed,
            "title": entry.title,
            "measures": entry.measures,
            "scale": entry.scale,
            "note": entry.note,
            "dataset": dataset,
            "split": last.split(),
            "rows": rows,
            "stands_in_for": entry.dataset if entry.dataset and entry.dataset != dataset else "",
        }
        return json.dumps(sweep, ensure_ascii=False)

    def _changes(self, point: _Point, seed: int) -> _Point:
        """Return the overrides of a point and a seed; the seed is left out if it is set already."""
        path = self.entry.seeds_at
        changes = {**self.fixed, **point}
        is_there = path in changes or (path == "seed" and seed == self.settings.seed)
        return changes if is_there else {**changes, path: seed}

    def _score(self, point: _Point, seed: int, run: str) -> Stage:
        try:
            return self.planners.of(self._changes(point, seed)).score(run, f"{self.where}.systems")
        except UserError as error:
            raise UserError(f"{self.where}: at {format_point(point)}: {error}") from None

    def _fixed(self, stand_in: bool) -> _Point:
        """Return the overrides that all points share: `with`, the dataset and the split."""
        fixed = dict(self.entry.with_)
        dataset = self.entry.dataset
        configured = self.settings.dataset
        if dataset and stand_in:
            dataset = choose_dataset(
                dataset, self.settings.stand_in, configured, [dataset], configured
            )
        if dataset and dataset not in self.settings.datasets:
            hint = nearest(dataset, list(self.settings.datasets))
            raise UserError(f"{self.where}.dataset: {dataset} is unknown{hint}")
        if dataset and dataset != configured:
            fixed["dataset"] = dataset
        if self.entry.split:
            fixed["score.split"] = self.entry.split
        self._try("with", fixed)
        return fixed

    def _try(self, key: str, overrides: _Point) -> None:
        """Refuse values that the configuration does not allow; `key` is the sweep's key that contains them."""
        try:
            self.planners.variants.settings(overrides)
        except UserError as error:
            lines = str(error).splitlines()
            raise UserError("\n".join(f"{self.where}.{key}: {line}" for line in lines)) from None

    def _typed(self, path: str, value: object, key: str) -> Any:
        """Return a value with the type that the configuration has at a path; a section is returned as written."""
        overrides = {**self.fixed, path: value}
        self._try(key, overrides)
        typed = self.planners.variants.value(overrides, path)
        try:
            json.dumps(typed)
        except TypeError:
            return value
        return typed

    def _seeds(self) -> list[int]:
        """Return the seeds; raise a `UserError` if the grid or `with` sets them, too."""
        path = self.entry.seeds_at
        seeds = self.entry.seeds
        for key, values in (("grid", self.values), ("with", self.fixed)):
            if path in values:
                if seeds:
                    raise UserError(
                        f"{self.where}.seeds: {key} has {path} too; leave one of them out"
                    )
                return [self.settings.seed]
        self._try("seeds_at", {**self.fixed, path: 0})
        return list(dict.fromkeys(seeds or self.settings.seeds or [self.settings.seed]))

    def _point(self, values: _Point, key: str) -> _Point:
        """Return the point of the grid with these values (path → value), and the first point's values elsewhere."""
        for path in values:
            if path not in self.values:
                raise UserError(
                    f"{self.where}.{key}: {path} is not in the grid{nearest(path, list(self.values))}"
                )
        point = self.points[0] | {
            path: self._typed(path, value, key) for path, value in values.items()
        }
        if point not in self.points:
            grid = format_point(self.values)
            raise UserError(
                f"{self.where}.{key}: {format_point(values)} is not a point; the grid has {grid}"
            )
        return point

    def _check(self) -> None:
        """Refuse a sweep that cannot be plotted: paths without effect, points that do not compare, unknown names."""
        for path, values in self.values.items():
            if len(values) > 1 and not self._has_effect(path):
                raise UserError(f"{self.where}.grid.{path}: none of the systems depends on it")
        seeds_at = self.entry.seeds_at
        # The configuration's own seed may have no effect: lexical systems have the same run with every seed.
        if seeds_at != "seed" and len(self.seeds) > 1 and not self._has_effect(seeds_at):
            raise UserError(f"{self.where}.seeds_at: none of the systems depends on {seeds_at}")

        places = {(scored.stage.dataset, scored.stage.values["split"]) for scored in self.scored}
        if len(places) > 1:
            on = ", ".join(sorted(f"{dataset} {split}" for dataset, split in places))
            raise UserError(
                f"{self.where}.grid: points are compared query by query, but search {on}; one sweep for each"
            )
        ((_, split),) = places
        for path, values in self.values.items():
            if len(values) > 1 and path.endswith(f".{split}_queries"):
                raise UserError(
                    f"{self.where}.grid.{path}: points are compared query by query, and this changes which {split} "
                    f"queries there are; set it in with"
                )

        measures = [scored.stage.values["measures"] for scored in self.scored]
        in_all = set(measures[0]).intersection(*measures)
        have = [measure for measure in measures[0] if measure in in_all]
        if not have:
            raise UserError(f"{self.where}.grid: the points have no measure in common")
        for measure in self.entry.measures or ():
            if measure not in have:
                raise UserError(
                    f"{self.where}.measures: {measure} is not scored{nearest(measure, have)}"
                )
        for at, printed in enumerate(self.entry.printed):
            if printed.system not in self.systems:
                hint = nearest(printed.system, list(self.systems))
                raise UserError(
                    f"{self.where}.printed.{at}.system: {printed.system} is not a system{hint}"
                )
            if printed.measure not in have:  # another configuration may score it
                check_measure_names(f"{self.where}.printed.{at}.measure", [printed.measure])

    def _has_effect(self, path: str) -> bool:
        """Return whether a score differs between points and seeds that differ only in a path."""
        digests: dict[str, set[str]] = {}  # everything but the path → digests of the scores
        for scored in self.scored:
            values = {self.entry.seeds_at: scored.seed, **scored.point}
            same = json.dumps([scored.system, {**values, path: None}], default=str)
            digests.setdefault(same, set()).add(scored.stage.digest)
        return any(len(different) > 1 for different in digests.values())


def _target(name: str) -> str:
    return f"sweep_{name}".replace("-", "_")


def format_point(point: _Point) -> str:
    """Return a point in words: `models.rocketqav2.train.lr=2e-05, seed=1`."""
    return ", ".join(
        f"{path}={json.dumps(value, ensure_ascii=False, default=str)}"
        for path, value in point.items()
    )


def _check_sweep_names(names: Iterable[str]) -> None:
    """Refuse names of sweeps that a target cannot have, and two names with the same target."""
    targets: dict[str, str] = {}
    for name in names:
        if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", name):
            raise UserError(f"sweeps.{name}: a name is letters, digits, '_' and '-'")
        target = _target(name)
        other = targets.setdefault(target, name)
        if other != name:
            raise UserError(
                f"sweeps.{name} has the target {target} of sweeps.{other}; name it otherwise"
            )


@plans_view("sweeps")
class SweepsView(View):
    """The sweeps of a configuration, which `rule all` makes, and those of config/sweeps/, each with its own target.

    Attributes:
        requested: the configuration's own sweeps; a mistake in these is a `UserError`.
        planned: name → sweep, for each that can be made.
        missing: name → the reason why a shipped sweep cannot be made.
    """

    rules = ("sweep", "sweeps")
    writes = ("sweeps",)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.planned: dict[str, PlannedSweep] = {}
        self.missing: dict[str, str] = {}
        own = plan.settings.entries("sweeps", Sweep)
        _check_sweep_names(own)
        self.requested = list(own)
        for name, entry in own.items():
            self.planned[name] = PlannedSweep(name, f"sweeps.{name}", entry, plan.planners)

        folder = plan.root / "config/sweeps"
        self._shipped = {
            path.stem: read_section(Sweep, path) for path in sorted(folder.glob("*.yaml"))
        }
        for name, entry in self._shipped.items():
            if name in self.planned:
                continue
            try:
                self.planned[name] = PlannedSweep(
                    name, f"config/sweeps/{name}.yaml", entry, plan.planners, stand_in=True
                )
            except UserError as error:
                self.missing[name] = str(error)

        for target in plan.tables.targets.keys() & self.by_target.keys():
            file = plan.tables.layouts[plan.tables.targets[target]]
            raise UserError(
                f"tables: {file}: {target} is the target of a sweep, too; name the file otherwise"
            )

    @property
    def by_target(self) -> dict[str, list[str]]:
        """Return target → sweeps: `sweep_<name>` and `sweeps` for the configuration's own, the name for others."""
        own = {_target(name): [name] for name in self.requested}
        others = {
            name.replace("-", "_"): [name]
            for name in (*self.planned, *self.missing)
            if name not in self.requested
        }
        return {"sweeps": self.requested, **own, **others}

    def targets(self) -> dict[str, list[Check]]:
        """See `View.targets`."""
        return {target: [partial(self.files_of, names)] for target, names in self.by_target.items()}

    def files(self) -> dict[str, Callable[[], list[str]]]:
        """See `View.files`."""
        return {target: partial(self.files_of, names) for target, names in self.by_target.items()}

    def files_of_all(self) -> list[str]:
        """See `View.files_of_all`."""
        return self.files_of(self.requested)

    def scores(self, target: str) -> list[Stage]:
        """Return the scores of the sweeps that a target of the command line makes."""
        is_shown = target in ("all", "report")
        names = self.requested if is_shown else self.by_target.get(target, [])
        stages: list[Stage] = []
        for name in names:
            if name in self.planned:
                stages += [scored.stage for scored in self.planned[name].scored]
        return stages

    def report_part(self) -> ReportPart | None:
        """Return the configuration's sweeps, and other sweeps whose files have the points that are planned now."""
        folder = Path(self.plan.views, "sweeps")
        others = [path.stem for path in sorted(folder.glob("*.points"))]
        others = [name for name in others if name in self.planned and name not in self.requested]
        finished = [str(folder / f"{name}.json") for name in others if self._is_finished(name)]
        files = self.files_of_all() + finished
        return ReportPart(files) if files else None

    def _is_finished(self, name: str) -> bool:
        """Return whether a sweep's files exist and have the points that are planned now."""
        points = Path(self.plan.views, "sweeps", f"{name}.points")
        if not points.with_suffix(".json").is_file():
            return False
        return points.read_text(encoding="utf-8") == self.planned[name].to_json() + "\n"

    def files_of(self, names: Iterable[str]) -> list[str]:
        """Return the JSON file of each sweep; refuse a sweep that cannot be made."""
        views = self.plan.views
        for name in names:
            if name not in self.planned:
                belongs_to = name_configurations(self._shipped[name].belongs_to, views)
                raise UserError(f"sweep {name} cannot be made: {self.missing[name]}{belongs_to}")
        return [f"{views}/sweeps/{name}.json" for name in names]
