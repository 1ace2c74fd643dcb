"""A sweep: the same systems at every point of a grid over the configuration's values, once for each seed."""

import itertools
import json
from dataclasses import dataclass

from tandem.errors import UserError
from tandem.planning.config import Config
from tandem.planning.graph import Stage
from tandem.planning.schema import nearest
from tandem.planning.sweep_grid import Grid, Point, worded
from tandem.planning.variants import Variants


@dataclass(frozen=True)
class Scored:
    """One system at one point with one seed, and the stage that scores it."""

    point: Point
    seed: int
    system: str
    stage: Stage


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
        self.grid = Grid(where, told, variants, stand_in)
        self.points, self.x = self.grid.points, self.grid.x
        systems = told["systems"]
        self.systems: dict[str, str] = systems if isinstance(systems, dict) else {run: run for run in systems}
        self.scored = [
            Scored(point, seed, system, self._score(point, seed, run))
            for point, seed, (system, run) in itertools.product(self.points, self.grid.seeds, self.systems.items())
        ]
        self.baseline = self.grid.point(told["baseline"] or self.points[0], "baseline")
        self.printed = [
            {**one, "point": self.grid.point(one["point"], f"printed.{at}.point")}
            for at, one in enumerate(told["printed"])
        ]
        self._check()

    @property
    def scores(self) -> list[str]:
        """Manifests of the scores."""
        return list(dict.fromkeys(one.stage.manifest for one in self.scored))

    def to_json(self) -> str:
        """What the command `sweep` reads: the sweep's words and every score's folder; equal sweeps give equal text."""
        last = self.variants.resolver(self.grid.changes(self.points[-1], self.grid.seeds[-1]))
        dataset = last.config["dataset"]
        told = {key: self.told[key] for key in ("title", "measures", "scale", "note")}
        rows = [
            {"point": one.point, "seed": one.seed, "system": one.system, "scores": one.stage.folder}
            for one in self.scored
        ]
        fixed = {"name": self.name, "paths": list(self.grid.values), "x": self.x, "baseline": self.baseline}
        fixed["printed"] = self.printed
        where = {"dataset": dataset, "split": last.runs.split(dataset), "stands_in_for": self._paper(dataset)}
        return json.dumps({**fixed, **told, **where, "rows": rows}, ensure_ascii=False)

    def _paper(self, dataset: str) -> str:
        """The paper's dataset, where another stands in for it."""
        named = self.told["dataset"] or dataset
        return "" if named == dataset else str(named)

    def _score(self, point: Point, seed: int, run: str) -> Stage:
        """The score of a run at a point."""
        of = self.variants.resolver(self.grid.changes(point, seed))
        try:
            return of.runs.score(run, f"{self.where}.systems", of.config["dataset"])
        except UserError as error:
            raise UserError(f"{self.where}: at {worded(point)}: {error}") from None
        finally:
            of.opened.clear()

    def _check(self) -> None:
        """Refuse what would make a plot that says nothing: a path that nothing depends on, an unknown name."""
        for path, values in self.grid.values.items():
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
