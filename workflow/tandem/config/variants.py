"""Variants of a configuration: dotted paths overridden, the rest shared.

A variant means what the same values in a `--configfile` mean. Only entries that a path touches are validated again, so
that a thousand variants are made in a second; a path into a catalogue or the recipes merges everything anew.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.config.base import Section
from tandem.config.loading import BLOCKS, CATALOGUES, assembled, catalogue, prepared, read_yaml, validated
from tandem.config.merging import INHERITING, Raw, merged, with_nulls
from tandem.config.settings import Settings
from tandem.config.validation import limited
from tandem.errors import UserError, nearest

WHOLE = {*CATALOGUES, "recipes", "plugins"}  # keys that decide how others are put together


class Variants:
    """The variants of one configuration.

    Raises:
        UserError: one line per mistake in the configuration itself.
    """

    def __init__(self, raw: Raw, root: Path) -> None:
        self._raw, self._root = prepared(raw), root
        self._assembled = assembled(self._raw, root)
        self.base = validated(self._assembled)
        self._settings: dict[str, Settings] = {}

    @property
    def own_datasets(self) -> list[str]:
        """The datasets that the configuration defines beside those of the catalogue."""
        return [
            name for name in self._raw.get("datasets") or {} if name not in catalogue(self._root / "config/datasets")
        ]

    def changed(self) -> set[str]:
        """The keys that files or command line give another value than config/config.yaml."""
        shipped = read_yaml(self._root / "config/config.yaml")
        return {key for key in self._raw.keys() | shipped.keys() if self._raw.get(key) != shipped.get(key)}

    def settings(self, overrides: Mapping[str, Any]) -> Settings:
        """The configuration with dotted paths overridden: `{"models.rocketqav2.train.list_size": 32}`.

        A mapping is merged into the one that is there; anything else replaces it. Equal overrides give the same object.

        Raises:
            UserError: naming the path: an unknown key, a wrong type, a value that is not allowed.
        """
        key = json.dumps(dict(overrides), sort_keys=True, default=str)
        if key not in self._settings:
            self._settings[key] = self._overridden(overrides) if overrides else self.base
        return self._settings[key]

    def value(self, overrides: Mapping[str, Any], path: str) -> Any:
        """The value at a path of a variant, typed: the number 2e-05 for the text `2e-5`."""
        value: Any = self.settings(overrides)
        for key in self.keys(path):
            value = _items(value)[key]
        return value

    def keys(self, path: str) -> list[str]:
        """A dotted path's keys; names may hold dots: `models.m.1.train.lr` is `models`, `m.1`, `train`, `lr`."""
        rest, keys = path.split("."), list[str]()
        value: Any = self.base
        while rest:
            items = _items(value)
            length = next((n for n in range(len(rest), 1, -1) if ".".join(rest[:n]) in items), 1)
            keys.append(".".join(rest[:length]))
            value, rest = items.get(keys[-1]), rest[length:]
        entries = getattr(self.base, keys[0], None)
        if len(keys) > 2 and isinstance(entries, dict) and keys[1] not in entries:
            raise UserError(f"{path}: {keys[0]} has no {keys[1]}{nearest(keys[1], list(entries))}")
        return keys

    def _overridden(self, overrides: Mapping[str, Any]) -> Settings:
        limited(overrides)
        paths = {path: self.keys(path) for path in overrides}
        touched = {keys[0] for keys in paths.values()}
        whole = bool(touched & WHOLE)
        raw = self._raw if whole else self._assembled
        for path, value in overrides.items():
            raw = _replaced(raw, paths[path], with_nulls(value))
        if whole:
            raw = assembled(raw, self._root)
            touched |= {key for key, value in raw.items() if value is not self._assembled.get(key)}
        if "plugins" in touched or self._assembled.keys() - raw.keys():  # other kinds of entries, or defaults again
            return validated(raw)
        unchanged = {block: self._unchanged(block, raw) for block in touched & BLOCKS.keys()}
        return validated({key: raw[key] for key in sorted(touched)}, self.base, unchanged)

    def _unchanged(self, block: str, raw: Raw) -> set[str]:
        """The entries that are as they are in the base, and so is everything that they take keys over from."""
        entries, before = raw.get(block), self._assembled.get(block)
        if not isinstance(entries, dict) or not isinstance(before, dict):
            return set()
        known = getattr(self.base, block)
        result: set[str] = set()
        for name in entries:
            above: Any = name
            while isinstance(above, str) and above in entries and entries[above] is before.get(above):
                above = (entries[above] or {}).get("like") if block == "models" else None
            if above is None and not isinstance(known.get(name), INHERITING):
                result.add(name)
        return result


def _items(value: Any) -> dict[str, Any]:
    """Key → value of a section or mapping; nothing of other values."""
    if isinstance(value, Section):
        return {field.alias or name: getattr(value, name) for name, field in type(value).model_fields.items()}
    return value if isinstance(value, dict) else {}


def _replaced(config: Any, keys: list[str], value: Any) -> Any:
    """A configuration with one value merged into it; what is not on the path to it is shared."""
    if not keys:
        return merged(config, value)
    items = config if isinstance(config, dict) else {}
    return {**items, keys[0]: _replaced(items.get(keys[0]), keys[1:], value)}
