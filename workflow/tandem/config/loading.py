"""Typed configurations: validate merged configurations, name every mistake before anything runs, derive variants."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tandem import ROOT
from tandem.config import merging
from tandem.config.base import Section
from tandem.config.datasets import DATASET_ENTRIES, Dataset, Inheriting, sources
from tandem.config.encoders import ENCODER_SOURCES, Encoder, PublishedEncoder
from tandem.config.indexes import INDEXES, AnyIndex
from tandem.config.merging import INHERITED, Raw, mapping, merged, read_own, read_yaml
from tandem.config.models import OBJECTIVES
from tandem.config.parsing import no_object, parse, read, refuse_too_large
from tandem.config.settings import Settings, added_blocks, catalogues, settings_model
from tandem.config.table_layouts import Band, TableLayout
from tandem.errors import NAME, UserError, nearest, printable, shortened

_S = TypeVar("_S", bound=Section)


def load_settings(raw: Raw, root: Path) -> Settings:
    """Complete a configuration: catalogues, recipes, types, defaults.

    Raises:
        UserError: one line per mistake.
    """
    return validated(merging.assembled(merging.prepared(raw), root))


def validated(
    config: Raw, base: Settings | None = None, unchanged: Mapping[str, set[str]] | None = None
) -> Settings:
    """Validate an assembled configuration.

    Args:
        config: the configuration; with `base`, only its top-level keys that differ from `base`.
        base: settings from which the other keys are taken over.
        unchanged: block → the entries that need no validation, since `base` has the same ones.
    Raises:
        UserError: one line per mistake.
    """
    values = {**(vars(base) if base is not None else {}), **config}
    blocks: dict[str, dict[str, Section]] = {}  # the blocks whose entries are validated one by one
    wrong: list[str] = []
    for block, parse_entry in parsers().items():
        if block not in config and base is not None:
            blocks[block] = dict(values.pop(block))
        if not isinstance(entries := config.get(block), dict):
            continue
        known = getattr(base, block) if base is not None else {}
        same = (unchanged or {}).get(block, set())
        if block == "models":
            entries, lines = merging.with_likes(entries, same)
            wrong += lines
        results, mistakes = dict[str, Section | None](), dict[str, list[str]]()
        for name, entry in entries.items():
            at = f"{block}.{printable(name)}"
            if name in same:
                results[name] = known[name]
            elif isinstance(entry, dict):
                results[name], lines = parse_entry(at, entry)
                mistakes[name] = [line + _meant(block, name, entries) for line in lines]
            else:
                mistakes[name] = [no_object(at, entry)]
        values.pop(block)
        blocks[block] = {name: entry for name, entry in results.items() if entry is not None}
        wrong += merging.without_inherited(mistakes, config[block])
    settings, lines = parse(settings_model(), values)
    wrong = [*lines, *wrong] or [
        f"{block}.{printable(name)}: not a name"  # such a name would break up every message with it
        for block, entries in config.items()
        if isinstance(entries, dict)
        for name in entries
        if not (name and name.isprintable())
    ]
    if settings is not None:
        settings = settings.model_copy(update=blocks)
    if settings is not None and not wrong and "datasets" in config:
        datasets, wrong = merging.inherited(settings.datasets)
        settings = settings.model_copy(update={"datasets": datasets})
    if settings is None or wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))
    return settings


def _meant(block: str, name: str, entries: Raw) -> str:
    """Return a hint for an entry without the key that complete ones have: a misspelt name, or a missing recipe."""
    key = _CHOOSING.get(block)
    if key is None or key in entries[name]:
        return ""
    hint = nearest(
        name,
        [other for other, entry in entries.items() if isinstance(entry, dict) and key in entry],
    )
    if "mean" in hint:
        return hint
    recipes = sorted((ROOT / "config/recipes").glob("*.yaml"))
    blocks = {path.stem: mapping(path, read_own(path)).get(block) for path in recipes}
    own = {
        recipe: entries.get(name) or {}
        for recipe, entries in blocks.items()
        if isinstance(entries, dict)
    }
    having = [recipe for recipe, entry in own.items() if {key, "like"} & {*entry}]
    return f"; recipe {' or '.join(having)} has the rest of it: add it to recipes" if having else ""


def _by(
    key: str, classes: Mapping[str, type[_S]], at: str, entry: Raw
) -> tuple[_S | None, list[str]]:
    """Validate an entry by the class that one of its keys chooses."""
    value = entry.get(key)
    if isinstance(value, str) and value in classes:
        return parse(classes[value], entry, at)
    allowed = f"; allowed: {', '.join(classes)}"
    if value is None:
        return None, [f"{at}.{key} is missing{allowed}"]
    hint = nearest(str(value), classes)
    return None, [
        f"{at}.{key} is {shortened(repr(value))}{hint if 'mean' in hint else ''}{allowed}"
    ]


def _dataset(at: str, entry: Raw) -> tuple[Dataset | None, list[str]]:
    source = str(entry.get("source"))
    # Sources of the user's own formats are found by looking at all formats, which takes long for each of many entries.
    known = DATASET_ENTRIES if source in DATASET_ENTRIES else sources()
    if issubclass(known.get(source, Dataset), Inheriting):
        entry = {
            key: value for key, value in entry.items() if value is not None or key not in INHERITED
        }
    return _by("source", known, at, entry)


def _encoder(at: str, entry: Raw) -> tuple[Encoder | None, list[str]]:
    source = ENCODER_SOURCES.get(str(entry.get("source")))
    if source is None:
        return parse(PublishedEncoder, entry, at)
    return _by(source.by, source.models, at, entry)


def _index(at: str, entry: Raw) -> tuple[AnyIndex | None, list[str]]:
    if not NAME.fullmatch(at.partition(".")[2]):
        return None, [f"{at}: a name is letters, digits, '_', '-' and '.'"]
    return _by("type", INDEXES, at, {"type": "factory", **entry} if "factory" in entry else entry)


_CHOOSING = {"models": "objective", "datasets": "source"}  # the key that every complete entry has
_Parser = Callable[[str, Raw], tuple[Section | None, list[str]]]
_PARSERS: dict[str, _Parser] = {
    "models": partial(_by, "objective", OBJECTIVES),
    "datasets": _dataset,
    "encoders": _encoder,
    "indexes": _index,
}


def parsers() -> dict[str, _Parser]:
    """Return block → the parser of its entries, for blocks whose keys depend on a source, objective or type."""
    added = {name: partial(_by, block.by, block.classes) for name, block in added_blocks().items()}
    return _PARSERS | added


class Variants:
    """The variants of one configuration.

    Raises:
        UserError: one line per mistake in the configuration itself.
    """

    def __init__(self, raw: Raw, root: Path) -> None:
        self._raw, self._root = merging.prepared(raw), root
        self._assembled = merging.assembled(self._raw, root)
        self.base = validated(self._assembled)
        self._settings: dict[str, Settings] = {}

    @property
    def own_datasets(self) -> list[str]:
        """The datasets that the configuration defines in addition to those of the catalogue."""
        shipped = merging.shipped_entries(self._root, "datasets")
        return [name for name in self._raw.get("datasets") or {} if name not in shipped]

    def changed(self) -> set[str]:
        """Return the keys whose value, from files or the command line, is not that of config/config.yaml."""
        shipped = read_yaml(self._root / "config/config.yaml")
        return {
            key
            for key in self._raw.keys() | shipped.keys()
            if self._raw.get(key) != shipped.get(key)
        }

    def settings(self, overrides: Mapping[str, Any]) -> Settings:
        """Return the configuration with dotted paths overridden: `{"models.rocketqav2.train.list_size": 32}`.

        A mapping is merged into the present one; any other value replaces it. Equal overrides give the same object.

        Raises:
            UserError: names the path: an unknown key, a wrong type, a value that is not allowed.
        """
        key = json.dumps(dict(overrides), sort_keys=True, default=str)
        if key not in self._settings:
            self._settings[key] = self._overridden(overrides) if overrides else self.base
        return self._settings[key]

    def value(self, overrides: Mapping[str, Any], path: str) -> Any:
        """Return the value at a path of a variant, typed: the number 2e-05 for the text `2e-5`."""
        settings = self.settings(overrides)
        value: Any = settings
        for key in split_path(path, settings):
            value = _items(value)[key]
        return value

    def _overridden(self, overrides: Mapping[str, Any]) -> Settings:
        refuse_too_large(overrides)
        base = self.base
        if "recipes" in overrides and len(overrides) > 1:  # the others may change recipes' entries
            base = self.settings({"recipes": overrides["recipes"]})
        paths = {path: split_path(path, base) for path in overrides}
        touched = {keys[0] for keys in paths.values()}
        # these keys decide how others are merged
        whole = bool(touched & {*catalogues(), "recipes", "plugins"})
        raw = self._raw if whole else self._assembled
        for path, value in overrides.items():
            raw = _replaced(raw, paths[path], merging.with_nulls(value))
        if whole:
            raw = merging.assembled(raw, self._root)
            touched |= {key for key, value in raw.items() if value is not self._assembled.get(key)}
        # there may be other kinds of entries, or keys with their defaults again
        if "plugins" in touched or self._assembled.keys() - raw.keys():
            return validated(raw)
        unchanged = {block: self._unchanged(block, raw) for block in touched & parsers().keys()}
        return validated({key: raw[key] for key in sorted(touched)}, self.base, unchanged)

    def _unchanged(self, block: str, raw: Raw) -> set[str]:
        """Return the entries that are unchanged from the base, as is every entry whose keys they take over."""
        entries, before = raw.get(block), self._assembled.get(block)
        if not isinstance(entries, dict) or not isinstance(before, dict):
            return set()
        known = getattr(self.base, block)
        result: set[str] = set()
        for name in entries:
            above: Any = name
            while (
                isinstance(above, str) and above in entries and entries[above] is before.get(above)
            ):
                above = (entries[above] or {}).get("like") if block == "models" else None
            if above is None and not isinstance(known.get(name), Inheriting):
                result.add(name)
        return result


def split_path(path: str, settings: Settings) -> list[str]:
    """Return a dotted path's keys; names may hold dots: `models.m.1.train.lr` is `models`, `m.1`, `train`, `lr`."""
    rest, keys = path.split("."), list[str]()
    value: Any = settings
    while rest:
        items = _items(value)
        length = next((n for n in range(len(rest), 1, -1) if ".".join(rest[:n]) in items), 1)
        keys.append(".".join(rest[:length]))
        value, rest = items.get(keys[-1]), rest[length:]
    entries = getattr(settings, keys[0], None)
    if len(keys) > 2 and isinstance(entries, dict) and keys[1] not in entries:
        raise UserError(f"{path}: {keys[0]} has no {keys[1]}{nearest(keys[1], list(entries))}")
    return keys


def _items(value: Any) -> dict[str, Any]:
    """Return key → value of a section or mapping; an empty mapping for other values."""
    if isinstance(value, Section):
        return {
            field.alias or name: getattr(value, name)
            for name, field in type(value).model_fields.items()
        }
    return value if isinstance(value, dict) else {}


def _replaced(config: Any, keys: list[str], value: Any) -> Any:
    """Return a configuration with one value merged into it; values off the path to it are shared."""
    if not keys:
        return merged(config, value)
    items = config if isinstance(config, dict) else {}
    return {**items, keys[0]: _replaced(items.get(keys[0]), keys[1:], value)}


def read_section(section: type[_S], path: Path) -> _S:
    """Read a YAML file that is one section; errors begin with its path."""
    result, lines = parse(section, read_own(path))
    if result is None:
        raise UserError("\n".join(f"{path}: {line}" for line in lines))
    return result


def read_layout(path: Path) -> TableLayout:
    """Read a table's layout: config/papers/<paper>/<table>.yaml."""
    if not path.exists():
        raise UserError(f"{path}: no such layout; layouts are config/papers/<paper>/<table>.yaml")
    return read_section(TableLayout, path)


def read_bands(path: Path) -> list[Band]:
    """Read config/papers/bands.yaml: the entries in its order."""
    content = read_yaml(path)
    if not isinstance(content, list):
        raise UserError(f"{path}: the whole is not a list of bands")
    return [read(Band, entry, f"{path}: {at}") for at, entry in enumerate(content)]
