"""Put the configuration together: read files, merge recipes and catalogues, name every mistake before anything runs."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tandem import ROOT
from tandem.config.base import Section
from tandem.config.datasets import Dataset, sources
from tandem.config.encoders import PRETRAINING, Encoder, PublishedEncoder
from tandem.config.indexes import INDEXES, TERM_INDEXES, Index, TermIndex
from tandem.config.language_models import LLM_METHODS
from tandem.config.merging import (
    INHERITED,
    Raw,
    inherited,
    merged,
    overlaid,
    with_likes,
    with_nulls,
    without_inherited,
)
from tandem.config.models import OBJECTIVES
from tandem.config.settings import Settings
from tandem.config.sweeps import Sweep
from tandem.config.tables import Band, TableLayout
from tandem.config.validation import limited, no_object, parse, read
from tandem.errors import NAME, UserError, nearest, printable, shortened
from tandem.registry import load_plugins

S = TypeVar("S", bound=Section)
CATALOGUES = ("datasets", "encoders", "indexes", "rerankers")
OWN = ("source", "type", "factory")  # an entry with one of these keys replaces the catalogue's of the same name
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML has it: eight times as fast


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        UserError: names the file, and the line if it is not valid YAML.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), LOADER) or {}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{where}: not valid YAML: {getattr(error, 'problem', error)}") from None
    except (ValueError, RecursionError) as error:  # 2026-13-01, a number of 5,000 digits, 1,000 brackets
        raise UserError(f"{path}: holds a value that cannot be read: {error}") from None


@cache
def _read_cached(path: Path, changed: int, size: int) -> Any:
    return merged(read_yaml(path))  # all keys are texts


def read_own(path: Path) -> Any:
    """`read_yaml` of one of the project's own files, once per process while it stays unchanged; do not modify."""
    if not path.is_file():
        return read_yaml(path)
    state = path.stat()
    return _read_cached(path, state.st_mtime_ns, state.st_size)


def gathered(files: Iterable[Path], root: Path) -> Raw:
    """Merge YAML files over the checkout's config/config.yaml, as Snakemake does with `--configfile`."""
    config: Raw = read_yaml(root / "config/config.yaml")
    for file in files:
        if not isinstance(over := read_yaml(file), dict):
            raise UserError(f"{file}: holds {type(over).__name__} and no mapping of keys to values")
        limited(over)
        config = merged(config, over)
    return config


def load_settings(raw: Raw, root: Path) -> Settings:
    """Complete a configuration: catalogues, recipes, types, defaults.

    Raises:
        UserError: one line per mistake.
    """
    return validated(assembled(prepared(raw), root))


def prepared(raw: Raw) -> Raw:
    """What Snakemake gives, with nulls for the texts `null`; a `UserError` where it is too large or too deep."""
    limited(raw)
    return dict(with_nulls(raw))


def assembled(raw: Raw, root: Path) -> Raw:
    """Merge catalogues, then recipes, then config/config.yaml with what Snakemake merged over it, not validated.

    Entries that only one of them has are shared with it: to be read alone.
    """
    plugins = raw.get("plugins") or []
    load_plugins(plugins if isinstance(plugins, list) else [])
    config: Raw = {}
    for name in CATALOGUES:
        config[name], entries = catalogue(root / "config" / name), raw.get(name)
        for entry, own in entries.items() if isinstance(entries, dict) else ():
            if isinstance(own, dict) and any(key in own for key in OWN):
                config[name].pop(entry, None)
    recipes = raw.get("recipes") or []
    if not isinstance(recipes, list):
        raise UserError(f"recipes is {shortened(json.dumps(recipes, default=str))}; allowed: array")
    return dict(
        reduce(overlaid, (*(_read_recipe(root / "config/recipes", str(name)) for name in recipes), raw), config)
    )


def catalogue(folder: Path) -> Raw:
    """Name → entry of every file in a catalogue's folder.

    A file holds the entry that it is named after, and variants of it: `<file>-<variant>`.
    """
    result: Raw = {}
    for path in sorted(folder.glob("*.yaml")):
        for name, entry in read_own(path).items():
            if name != path.stem and not str(name).startswith(f"{path.stem}-"):
                raise UserError(f"{path}: {name}; a file holds the entry it is named after and {path.stem}-… ones")
            if name in result:
                raise UserError(f"{path}: {name} stands in another file of {folder} too; name it once")
            result[name] = entry
    return result


def _read_recipe(folder: Path, name: str) -> Raw:
    known = [path.stem for path in folder.glob("*.yaml")]
    if name not in known:
        raise UserError(f"recipes: {printable(name)} is unknown{nearest(name, known)}")
    return dict(read_own(folder / f"{name}.yaml"))


def validated(config: Raw, base: Settings | None = None, unchanged: Mapping[str, set[str]] | None = None) -> Settings:
    """Validate an assembled configuration.

    Args:
        config: with `base` only the top-level keys that differ from it.
        base: settings of which the other keys are taken over.
        unchanged: of a block of entries those that need no validation since `base` has the same.
    Raises:
        UserError: one line per mistake.
    """
    values = {**(vars(base) if base is not None else {}), **config}
    wrong: list[str] = []
    for block, parse_entry in BLOCKS.items():
        if not isinstance(entries := config.get(block), dict):
            continue
        known = getattr(base, block) if base is not None else {}
        same = (unchanged or {}).get(block, set())
        if block == "models":
            entries, lines = with_likes(entries, same)
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
        values[block] = {name: entry for name, entry in results.items() if entry is not None}
        wrong += without_inherited(mistakes, config[block])
    settings, lines = parse(Settings, values)
    wrong = [*lines, *wrong] or [
        f"{block}.{printable(name)}: not a name"  # it would break up every message about it
        for block, entries in config.items()
        if isinstance(entries, dict)
        for name in entries
        if not (name and name.isprintable())
    ]
    if settings is not None and not wrong and "datasets" in config:
        datasets, wrong = inherited(settings.datasets)
        settings = settings.model_copy(update={"datasets": datasets})
    if settings is None or wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))
    return settings


def _meant(block: str, name: str, entries: Raw) -> str:
    """A hint for an entry without the key that whole entries have: its name is misspelt, or its recipe is missing."""
    key = _CHOOSING.get(block)
    if key is None or key in entries[name]:
        return ""
    hint = nearest(name, [other for other, entry in entries.items() if isinstance(entry, dict) and key in entry])
    if "mean" in hint:
        return hint
    recipes = sorted((ROOT / "config/recipes").glob("*.yaml"))
    own = {path.stem: read_own(path).get(block, {}).get(name) or {} for path in recipes}
    having = [recipe for recipe, entry in own.items() if {key, "like"} & {*entry}]
    return f"; recipe {' or '.join(having)} has the rest of it: add it to recipes" if having else ""


def _by(key: str, classes: Mapping[str, type[S]], at: str, entry: Raw) -> tuple[S | None, list[str]]:
    """Validate an entry by the class that one of its keys chooses."""
    value = entry.get(key)
    if isinstance(value, str) and value in classes:
        return parse(classes[value], entry, at)
    allowed = f"; allowed: {', '.join(classes)}"
    if value is None:
        return None, [f"{at}.{key} is missing{allowed}"]
    hint = nearest(str(value), classes)
    return None, [f"{at}.{key} is {shortened(repr(value))}{hint if 'mean' in hint else ''}{allowed}"]


def _dataset(at: str, entry: Raw) -> tuple[Dataset | None, list[str]]:
    if entry.get("source") in ("windows", "unlabelled"):
        entry = {key: value for key, value in entry.items() if value is not None or key not in INHERITED}
    return _by("source", sources(), at, entry)


def _encoder(at: str, entry: Raw) -> tuple[Encoder | None, list[str]]:
    if entry.get("source") != "pretrain":
        return parse(PublishedEncoder, entry, at)
    return _by("objective", PRETRAINING, at, entry)


def _index(at: str, entry: Raw) -> tuple[Index | TermIndex | None, list[str]]:
    if not NAME.fullmatch(at.partition(".")[2]):
        return None, [f"{at}: a name is letters, digits, '_', '-' and '.'"]
    types: dict[str, type[Index | TermIndex]] = {**INDEXES, **TERM_INDEXES}
    return _by("type", types, at, {"type": "factory", **entry} if "factory" in entry else entry)


_CHOOSING = {"models": "objective", "datasets": "source"}  # the key that no whole entry lacks
# Blocks of entries whose keys depend on one of them: its source, objective or type.
BLOCKS: dict[str, Callable[[str, Raw], tuple[Section | None, list[str]]]] = {
    "models": partial(_by, "objective", OBJECTIVES),
    "datasets": _dataset,
    "encoders": _encoder,
    "indexes": _index,
    "llm_rerankers": partial(_by, "method", LLM_METHODS),
}


def read_section(section: type[S], path: Path) -> S:
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
        raise UserError(f"{path}: the whole is no list of bands")
    return [read(Band, entry, f"{path}: {at}") for at, entry in enumerate(content)]


def read_sweeps(folder: Path) -> dict[str, Sweep]:
    """Name → sweep of every file of config/sweeps/."""
    return {path.stem: read_section(Sweep, path) for path in sorted(folder.glob("*.yaml"))}
