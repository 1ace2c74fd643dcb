"""What a sweep varies: the values of its paths, its seeds, and what is the same at every point."""

import itertools
import json
from typing import Any

from tandem.errors import UserError
from tandem.planning.config import Config
from tandem.planning.schema import nearest
from tandem.planning.stand_ins import searched
from tandem.planning.variants import Variants

Point = dict[str, Any]


class Grid:
    """The points of a sweep, and the configuration at each.

    Args:
        where: what an error begins with: `sweeps.<name>`, or its file.
        told: the sweep's entry, with defaults.
        variants: of the configuration.
        stand_in: whether the dataset is a paper's, which another may stand in for.
    Attributes:
        base: what every point overrides.
        values: path → its values.
        seeds: the seeds at every point.
        points: every combination of values.
    Raises:
        UserError: a path, value or dataset that cannot be had.
    """

    def __init__(self, where: str, told: Config, variants: Variants, stand_in: bool) -> None:
        self.where, self.told, self.variants = where, told, variants
        self.config = variants.resolver({}).config
        self.base = self._fixed(stand_in)
        self.values = {path: self._values(path, values) for path, values in told["grid"].items()}
        self.seeds = self._seeds()
        self.points: list[Point] = [
            dict(zip(self.values, at, strict=True)) for at in itertools.product(*self.values.values())
        ]

    @property
    def x(self) -> str:
        """The path along the axis: as told, else the first with several values."""
        varied = [path for path, values in self.values.items() if len(values) > 1]
        told: str = self.told["x"] or next(iter([*varied, *self.values]))
        if told not in self.values:
            raise UserError(f"{self.where}.x: is {told}{nearest(told, list(self.values))}")
        return told

    def changes(self, point: Point, seed: int) -> dict[str, Any]:
        """What a point overrides; a seed that stands there already is none."""
        path = self.told["seeds_at"]
        same = path in point or (path == "seed" and seed == self.config["seed"])
        return {**self.base, **point, **({} if same else {path: seed})}

    def point(self, told: Point, key: str) -> Point:
        """The point of the grid that path → value names; what it leaves out is as at the first point."""
        for path in told:
            if path not in self.values:
                raise UserError(f"{self.where}.{key}: {path} is not in the grid{nearest(path, list(self.values))}")
            self._asked(key, {**self.base, path: told[path]})
        typed_as = {path: self.variants.value({**self.base, path: value}, path) for path, value in told.items()}
        if (wanted := {**self.points[0], **typed_as}) not in self.points:
            raise UserError(f"{self.where}.{key}: {worded(told)} is no point; the grid has {worded(self.values)}")
        return wanted

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
        if path in self.values:
            if told:
                raise UserError(f"{self.where}.seeds: is told, but the grid has {path}; leave one of them out")
            return [self.config["seed"]]
        self._asked("seeds_at", {**self.base, path: 0})
        return list(dict.fromkeys(told or self.config["seeds"] or [self.config["seed"]]))


def worded(point: Point) -> str:
    """`models.rocketqav2.train.lr=2e-05, seed=1`."""
    return ", ".join(f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in point.items())
