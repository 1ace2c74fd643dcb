"""Sweeps: the same systems at every point of a grid over the configuration's values, once for each seed.

A sweep stands under `sweeps:` of a configuration, or is a file of config/sweeps/ and a target of its own.
"""

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.planning.config import Config, known
from tandem.planning.graph import Stage
from tandem.planning.schema import mistakes, nearest, typed
from tandem.planning.stand_ins import searched
from tandem.planning.variants import Variants

Point = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """One system at one point with one seed, and the stage that scores it."""

    point: Point
    seed: int
    system: str
    stage: Stage


def shipped(folder: Path, schema: Config) -> dict[str, Config]:
    """Name → sweep of every file of a folder, with defaults."""
    made = {}
    for path in sorted(folder.glob("*.yaml")):
        made[path.stem] = typed(known(path), {"$ref": "#/$defs/sweep"}, schema)
        if wrong := mistakes(made[path.stem], {"$ref": "#/$defs/sweep"}, schema):
            raise UserError("\n".join(f"{path}: {line}" for line in wrong))
    return made


class Sweep:
    """A sweep's points and the stages that they need.

    Args:
        name: its name.
        where: what an error begins with: `sweeps.<name>`, or its file.
        told: its entry, with defaults.
        variants: of the configuration.
        stand_in: whether the dataset is a paper's, which another may stand in for.
    Raises:
        UserError: a path, value, system, measure or point that cannot be had.
    """

    def __init__(self, name: str, where: str, told: Config, variants: Variants, stand_in: bool = False) -> None:
        self.name, self.where, self.told, self.variants = name, where, told, variants
        self.config = variants.resolver({}).config
        self.base = self._fixed(stand_in)
        self.grid = {path: self._values(path, values) for path, values in told["grid"].items()}
        varied = [path for path, values in self.grid.items() if len(values) > 1]
        self.x: str = told["x"] or next(iter([*varied, *self.grid]))
        if self.x not in self.grid:
            raise UserError(f"{where}.x: is {self.x}{nearest(self.x, list(self.grid))}")
        self.seeds = self._seeds()
        systems = told["systems"]
        self.systems: dict[str, str] = systems if isinstance(systems, dict) else {run: run for run in systems}
        self.points: list[Point] = [
            dict(zip(self.grid, at, strict=True)) for at in itertools.product(*self.grid.values())
        ]
        self.scored = [
            Scored(point, seed, system, self._score(point, seed, run))
            for point, seed, (system, run) in itertools.product(self.points, self.seeds, self.systems.items())
        ]
        self.baseline = self._point(told["baseline"] or self.points[0], "baseline")
        self.printed = [
            {**one, "point": self._point(one["point"], f"printed.{at}.point")} for at, one in enumerate(told["printed"])
        ]
        self._check()

    @property
    def scores(self) -> list[str]:
        """Manifests of the scores."""
        return list(dict.fromkeys(one.stage.manifest for one in self.scored))

    def to_json(self) -> str:
        """What the command `sweep` reads: the sweep's words and every score's folder; equal sweeps give equal text."""
        last = self.variants.resolver(self._changes(self.points[-1], self.seeds[-1]))
        dataset = last.config["dataset"]
        told = {key: self.told[key] for key in ("title", "measures", "scale", "note")}
        rows = [
            {"point": one.point, "seed": one.seed, "system": one.system, "scores": one.stage.folder}
            for one in self.scored
        ]
        fixed = {"name": self.name, "paths": list(self.grid), "x": self.x, "baseline": self.baseline}
        fixed["printed"] = self.printed
        where = {"dataset": dataset, "split": last.runs.split(dataset), "stands_in_for": self._paper(dataset)}
        return json.dumps({**fixed, **told, **where, "rows": rows}, ensure_ascii=False)

    def _paper(self, dataset: str) -> str:
        """The paper's dataset, where another stands in for it."""
        named = self.told["dataset"] or dataset
        return "" if named == dataset else str(named)

    def _fixed(self, stand_in: bool) -> dict[str, Any]:
        """What every point overrides: `with`, and where the search happens."""
        made, named = dict(self.told["with"]), self.told["dataset"]
        if named and stand_in:
            named = searched(named, self.config["stand_in"], self.config["dataset"], [named])
        if named and named not in self.config["datasets"]:
            raise UserError(f"{self.where}.dataset: {named} is unknown{nearest(named, list(self.config['datasets']))}")
        if named and named != self.config["dataset"]:
            made["dataset"] = named
        if self.told["split"]:
            made["score.split"] = self.told["split"]
        self._asked("with", made)
        return made

    def _asked(self, key: str, overrides: dict[str, Any]) -> None:
        """See whether the configuration takes these values; `key` is that of the sweep that says them."""
        try:
            self.variants.resolver(overrides)
        except UserError as error:
            lines = str(error).splitlines()
            raise UserError("\n".join(f"{self.where}.{key}: {line}" for line in lines)) from None

    def _values(self, path: str, values: list[Any]) -> list[Any]:
        """A path's values, typed as the configuration's are; each once."""
        made: dict[str, Any] = {}
        for value in values:
            at = {**self.base, path: value}
            self._asked(f"grid.{path}", at)
            read = self.variants.value(at, path)
            made.setdefault(json.dumps(read, sort_keys=True), read)
        return list(made.values())

    def _seeds(self) -> list[int]:
        """The seeds; a `UserError` if the grid has them too."""
        told, path = self.told["seeds"], self.told["seeds_at"]
        if path in self.grid:
            if told:
                raise UserError(f"{self.where}.seeds: is told, but the grid has {path}; leave one of them out")
            return [self.config["seed"]]
        self._asked("seeds_at", {**self.base, path: 0})
        return list(dict.fromkeys(told or self.config["seeds"] or [self.config["seed"]]))

    def _changes(self, point: Point, seed: int) -> dict[str, Any]:
        """What a point overrides; a seed that stands there already is none."""
        path = self.told["seeds_at"]
        same = path in point or (path == "seed" and seed == self.config["seed"])
        return {**self.base, **point, **({} if same else {path: seed})}

    def _score(self, point: Point, seed: int, run: str) -> Stage:
        """The score of a run at a point."""
        of = self.variants.resolver(self._changes(point, seed))
        try:
            return of.runs.score(run, f"{self.where}.systems", of.config["dataset"])
        except UserError as error:
            raise UserError(f"{self.where}: at {worded(point)}: {error}") from None
        finally:
            of.opened.clear()

    def _point(self, told: Point, key: str) -> Point:
        """The point of the grid that path → value names; what it leaves out is as at the first point."""
        for path in told:
            if path not in self.grid:
                raise UserError(f"{self.where}.{key}: {path} is not in the grid{nearest(path, list(self.grid))}")
            self._asked(key, {**self.base, path: told[path]})
        typed_as = {path: self.variants.value({**self.base, path: value}, path) for path, value in told.items()}
        if (wanted := {**self.points[0], **typed_as}) not in self.points:
            raise UserError(f"{self.where}.{key}: {worded(told)} is no point; the grid has {worded(self.grid)}")
        return wanted

    def _check(self) -> None:
        """Refuse what would make a plot that says nothing: a path that nothing depends on, an unknown name."""
        for path, values in self.grid.items():
            keys: dict[str, set[str]] = {}
            for one in self.scored:
                rest = {other: value for other, value in one.point.items() if other != path}
                keys.setdefault(json.dumps([rest, one.seed, one.system]), set()).add(one.stage.digest)
            if len(values) > 1 and all(len(found) == 1 for found in keys.values()):
                raise UserError(f"{self.where}.grid.{path}: none of the systems depends on it")
        if len(searched_on := {(one.stage.dataset, one.stage.params["split"]) for one in self.scored}) > 1:
            on = ", ".join(sorted(f"{dataset} {split}" for dataset, split in searched_on))
            raise UserError(
                f"{self.where}.grid: points are compared query by query, but search {on}; one sweep for each"
            )
        have = self.scored[0].stage.params["measures"]
        for measure in self.told["measures"] or ():
            if measure not in have:
                raise UserError(f"{self.where}.measures: {measure} is not scored{nearest(measure, have)}")
        for at, printed in enumerate(self.printed):
            if printed["system"] not in self.systems:
                hint = nearest(printed["system"], list(self.systems))
                raise UserError(f"{self.where}.printed.{at}.system: {printed['system']} is no system{hint}")


def worded(point: Point) -> str:
    """`models.rocketqav2.train.lr=2e-05, seed=1`."""
    return ", ".join(f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in point.items())


class Sweeps:
    """The sweeps of a configuration, which `rule all` makes, and those of config/sweeps/, each for itself.

    Args:
        variants: of the configuration.
        folder: config/sweeps/.
    Raises:
        UserError: a mistake in one of the configuration's own.
    """

    def __init__(self, variants: Variants, folder: Path) -> None:
        told = variants.resolver({}).config["sweeps"]
        for name in told:
            if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]*", name):
                raise UserError(f"sweeps.{name}: a name is letters, digits, '_' and '-'")
        self.wanted, self.missing = list(told), dict[str, str]()
        self.made = {name: Sweep(name, f"sweeps.{name}", spec, variants) for name, spec in told.items()}
        for name, spec in shipped(folder, variants.schema).items():
            if name in self.made:
                continue
            try:
                self.made[name] = Sweep(name, f"config/sweeps/{name}.yaml", spec, variants, stand_in=True)
            except UserError as error:
                self.missing[name] = str(error)

    @property
    def targets(self) -> dict[str, list[str]]:
        """Target of the command line → sweeps: `sweep_<name>` and `sweeps` for the configuration's, else by name."""
        own = {f"sweep_{name}".replace("-", "_"): [name] for name in self.wanted}
        others = {name.replace("-", "_"): [name] for name in (*self.made, *self.missing) if name not in self.wanted}
        return {"sweeps": self.wanted, **own, **others}

    def files(self, names: Iterable[str]) -> list[str]:
        """The file of each sweep that programs read; a `UserError` for one that cannot be had."""
        for name in names:
            if name not in self.made:
                raise UserError(f"sweep {name} cannot be made: {self.missing[name]}")
        return [f"results/sweeps/{name}.json" for name in names]
