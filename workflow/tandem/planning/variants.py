"""Variants of a configuration: dotted paths overridden, the rest shared.

A variant means what the same values in a `--configfile` mean. Only what a path touches is typed and checked again, so
that a thousand variants are planned in seconds; a path into a catalogue or the recipes completes everything anew.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.planning.config import CATALOGUES, Config, assembled, checked, complete, like, merged, models, schemas
from tandem.planning.graph import Stages
from tandem.planning.resolver import Resolver
from tandem.planning.schema import mistakes, nearest, typed

WHOLE = {*CATALOGUES, "recipes"}  # keys that decide how others are put together


class Variants:
    """The variants of one configuration, each with a resolver of its own; equal stages are one.

    Args:
        told: the configuration as Snakemake gathered it.
        root: the checkout.
        stages: where the variants' stages are registered.
    Raises:
        UserError: one line per mistake in the configuration itself.
    """

    def __init__(self, told: Config, root: Path, stages: Stages) -> None:
        self.told, self.root, self.stages = told, root, stages
        self.schema, _ = schemas(root)
        self._raw = assembled(told, root)
        self._base = checked(self._raw, root)
        self._liked = _liked(self._raw)
        self._right: set[tuple[str, str]] = set()  # see `_heirs`
        self._made: dict[str, Resolver] = {}

    def resolver(self, overrides: Mapping[str, Any]) -> Resolver:
        """The resolver of the configuration with dotted paths overridden: `{"models.rocketqav2.train.list_size": 32}`.

        A mapping is laid upon the one that is there; anything else replaces it.

        Raises:
            UserError: naming the path: an unknown key, a wrong type, a value that is not allowed.
        """
        key = json.dumps(dict(overrides), sort_keys=True, default=str)
        if key not in self._made:
            self._made[key] = Resolver(self._config(overrides), self.stages)
        return self._made[key]

    def value(self, overrides: Mapping[str, Any], path: str) -> Any:
        """What stands at a path in a variant, typed: the number 2e-05 for the text `2e-5`."""
        at: Any = self.resolver(overrides).config
        for key in self.keys(path):
            at = at[key]
        return at

    def keys(self, path: str) -> list[str]:
        """A dotted path's keys; names may hold dots: `models.m.1.train.lr` is `models`, `m.1`, `train`, `lr`."""
        rest, keys, at = path.split("."), list[str](), self._base
        while rest:
            names = at if isinstance(at, dict) else {}
            long = next((n for n in range(len(rest), 1, -1) if ".".join(rest[:n]) in names), 1)
            keys.append(".".join(rest[:long]))
            at, rest = names.get(keys[-1], {}), rest[long:]
        told = self.schema["properties"].get(keys[0], {})
        if len(keys) > 2 and isinstance(told.get("additionalProperties"), dict) and keys[1] not in self._base[keys[0]]:
            raise UserError(f"{path}: {keys[0]} has no {keys[1]}{nearest(keys[1], list(self._base[keys[0]]))}")
        return keys

    def _config(self, overrides: Mapping[str, Any]) -> Config:
        """A variant's completed configuration; what no path touches is shared with the others."""
        paths = {path: self.keys(path) for path in overrides}
        touched = {keys[0] for keys in paths.values()}
        whole = bool(touched & WHOLE)
        raw = self.told if whole else self._raw
        for path, value in overrides.items():
            raw = _laid(raw, paths[path], value)
        config = complete(raw, self.root) if whole else self._again(raw, paths, overrides)
        # A table may enter variants of datasets: not into another's configuration.
        return {**config, "datasets": dict(config["datasets"])}

    def _again(self, raw: Config, paths: dict[str, list[str]], overrides: Mapping[str, Any]) -> Config:
        """The base's configuration with the top-level keys of some paths typed and checked once more."""
        touched = {keys[0] for keys in paths.values()}
        told = {key: raw[key] for key in sorted(touched)}
        if isinstance(entries := told.get("models"), dict):
            told["models"] = {n: spec for n, spec in entries.items() if spec is not self._raw["models"].get(n)}
        properties = {key: inner for key, inner in self.schema["properties"].items() if key in touched}
        made = typed(told, {**self.schema, "properties": properties}, self.schema)
        wrong = mistakes(made, {**self.schema, "required": []}, self.schema)
        if not wrong and "models" in touched:
            liked = _liked(raw)
            changed = {name: spec for name, spec in liked.items() if spec != self._liked.get(name)}
            heirs = self._heirs(changed, paths, overrides)
            anew, wrong = models(changed, self.schema, {name for name, _ in heirs & self._right})
            self._right |= set() if wrong else heirs
            made["models"] = {name: anew.get(name) or self._base["models"].get(name) for name in liked}
        if wrong:
            # Models that are like a wrong one are wrong too; one line is enough.
            own = tuple(".".join(keys[:2]) + ("." if keys[2:] else "") for keys in paths.values())
            raise UserError("\n".join([line for line in wrong if line.startswith(own)] or wrong))
        return {**self._base, **made}

    def _heirs(
        self, changed: Config, paths: dict[str, list[str]], overrides: Mapping[str, Any]
    ) -> set[tuple[str, str]]:
        """Models that change because they are like one that a path names, with what they inherit but for the numbers.

        The schema looks at each value by itself, so that a number which is right in the one is right in the others of
        its objective: they are checked once, not at every point of a sweep.
        """
        named = {keys[1] for keys in paths.values() if keys[0] == "models" and len(keys) > 1}
        objectives = {changed[name].get("objective") for name in named if name in changed}
        shape = json.dumps({p: None if type(v) in (int, float) else [v] for p, v in overrides.items()}, default=str)
        return {
            (name, shape)
            for name, spec in changed.items()
            if name not in named and {spec.get("objective")} == objectives
        }


def _laid(config: Any, keys: list[str], value: Any) -> Any:
    """A configuration with one value laid upon it; what is not on the way to it is shared, nothing is changed."""
    if not keys:
        return merged(config, value)
    there = config if isinstance(config, dict) else {}
    return {**there, keys[0]: _laid(there.get(keys[0]), keys[1:], value)}


def _liked(raw: Config) -> dict[str, Any]:
    """Every model's own entry laid upon that of the model it is `like`."""
    told = {name: spec for name, spec in raw.get("models", {}).items() if spec is not None}
    return {name: like(name, told, []) for name in told}
