"""Configurations before they are validated: read files, merge catalogues and recipes, take over what entries share.

An entry takes over keys of files and recipes; a model, those of the model that it is `like`; a dataset such as that of
windows, those of the dataset that it is `of`.
"""

import json
import os
from collections.abc import Container, Iterable
from functools import cache, lru_cache, reduce
from pathlib import Path
from typing import Any

import yaml

from tandem.config.datasets import CutDocuments, Dataset, Inheriting, OfSearched
from tandem.config.parsing import no_object, refuse_too_large
from tandem.config.settings import catalogues
from tandem.errors import UserError, nearest, printable, shortened
from tandem.plugins import CONTRIB, load_plugins

Raw = dict[str, Any]  # what YAML or Snakemake gives: not validated
_MOST_CATALOGUES = 16  # catalogues whose content is cached
# An entry with one of these keys replaces the catalogue's entry of the same name, and also a recipe's if that has
# another value for the key.
_OWN = ("source", "type", "factory")
INHERITED = (
    "language",
    "analyzer",
    "relevance",
    "match",
    "score_split",
    "ignore_identical_ids",
)
"""What `Inheriting` datasets take over from the dataset that they are `of`, where they do not say it."""
# libyaml's, where PyYAML has it: eight times as fast
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path, filled: bool = False) -> Any:
    """Read a YAML file; one that holds nothing is an empty mapping.

    Raises:
        UserError: names the file, and the line if it is not valid YAML or has a key twice; with `filled` also if it
            holds nothing.
    """
    try:
        loader = LOADER(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if repeated := find_repeated_key(node):
            key, first = repeated
            place = f"{path}:{key.start_mark.line + 1}: {printable(key.value)}"
            raise UserError(
                f"{place} stands in line {first.start_mark.line + 1} already; YAML would drop that one"
            )
        if filled and node is None:
            raise UserError(f"{path}: holds nothing; allowed: keys with values")
        return loader.construct_document(node) or {} if node else {}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        command = f"tandem init NAME --data {path}"
        raise UserError(f"{path} is a folder; `{command}` writes a configuration for it") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", error)
        raise UserError(f"{path}{where}: not valid YAML: {reason}") from None
    # 2026-13-01, a number of 5,000 digits, 1,000 brackets
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: holds a value that cannot be read: {error}") from None


def find_repeated_key(node: yaml.Node | None) -> tuple[yaml.ScalarNode, yaml.ScalarNode] | None:
    """Return a key that a mapping at or below a node has twice, and its first occurrence; None if there is none."""
    waiting, walked = [node] if node else [], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in walked or isinstance(current, yaml.ScalarNode):
            continue
        walked.add(id(current))  # an alias is the node that it stands for
        if isinstance(current, yaml.MappingNode):
            before: dict[str, yaml.ScalarNode] = {}
            for key, value in current.value:
                waiting.append(value)
                if (
                    isinstance(key, yaml.ScalarNode)
                    and before.setdefault(key.value, key) is not key
                ):
                    return key, before[key.value]
        else:
            waiting += current.value
    return None


@cache
def _read_cached(path: Path, state: tuple[int, int] | None) -> Any:
    return merged(read_yaml(path))  # all keys are texts


def read_own(path: Path) -> Any:
    """Return `read_yaml` of a file of the project, read once per process while it stays unchanged; do not modify it."""
    state = path.stat() if path.is_file() else None  # the reader names a missing file
    return _read_cached(path, state and (state.st_mtime_ns, state.st_size))


def mapping(path: Path, content: Any) -> Raw:
    """Return the content of a file if it is keys with values; a `UserError` for anything else."""
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds {type(content).__name__} and no mapping of keys to values")
    return content


def gathered(files: Iterable[Path], root: Path) -> Raw:
    """Merge YAML files over the checkout's config/config.yaml, as Snakemake does with `--configfile`."""
    config: Raw = read_yaml(root / "config/config.yaml")
    for file in files:
        over = mapping(file, read_yaml(file, filled=True))
        refuse_too_large(over)
        config = merged(config, over)
    return config


def prepared(raw: Raw) -> Raw:
    """Return Snakemake's configuration with nulls for texts `null`; a `UserError` if it is too large or too deep."""
    refuse_too_large(raw)
    return dict(with_nulls(raw))


def assembled(raw: Raw, root: Path) -> Raw:
    """Merge catalogues, then recipes, then config/config.yaml with what Snakemake merged over it, not validated.

    Entries that only one of them has are shared with it: read them, do not modify them.
    """
    plugins = raw.get("plugins") or []
    if isinstance(plugins, list):  # other types, also within the list, are refused by name later
        load_plugins([plugin for plugin in plugins if isinstance(plugin, str)])
    config: Raw = {}
    blocks: Raw = {name: {} for name in catalogues()}  # new mappings, not shared with a recipe
    recipes = reduce(overlaid, _read_recipes(root / "config/recipes", raw), blocks)
    for name in catalogues():
        config[name], entries = shipped_entries(root, name), raw.get(name)
        for entry, own in entries.items() if isinstance(entries, dict) else ():
            if not (isinstance(own, dict) and any(key in own for key in _OWN)):
                continue
            config[name].pop(entry, None)
            of_recipes = recipes[name].get(entry, {})
            if any(key in own and own[key] != of_recipes.get(key) for key in _OWN):
                recipes[name].pop(entry, None)
    return dict(reduce(overlaid, (recipes, raw), config))


def shipped_entries(root: Path, block: str) -> Raw:
    """Return name → entry of a block's catalogue: those of `config/` in a checkout, then those that packages bring.

    A package of `contrib/` brings the entries that need it in its own folder `config/`.
    """
    entries = catalogue(root / "config" / block)
    for folder in sorted(CONTRIB.glob(f"*/config/{block}")):
        brought = catalogue(folder)
        for name in entries.keys() & brought.keys():
            raise UserError(f"{folder}: {name} stands in another catalogue, too; name it once")
        entries |= brought
    return entries


def catalogue(folder: Path) -> Raw:
    """Return name → entry of every file in a catalogue's folder; the entries are shared: do not modify them.

    A file holds the entry that it is named after, and variants of it: `<file>-<variant>`.
    """
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as files:
        states = ((file.name, file.stat()) for file in files if file.name.endswith(".yaml"))
        return dict(
            _catalogue(
                folder, *sorted((name, state.st_mtime_ns, state.st_size) for name, state in states)
            )
        )


@lru_cache(_MOST_CATALOGUES)
def _catalogue(folder: Path, *states: tuple[str, int, int]) -> Raw:
    """Return `catalogue` of some files, cached while they stay unchanged."""
    result: Raw = {}
    for path in (folder / name for name, *_ in states):
        for name, entry in mapping(path, read_own(path)).items():
            if name != path.stem and not str(name).startswith(f"{path.stem}-"):
                raise UserError(
                    f"{path}: {name}; a file holds the entry it is named after and {path.stem}-… ones"
                )
            if name in result:
                raise UserError(
                    f"{path}: {name} stands in another file of {folder} too; name it once"
                )
            result[name] = entry
    return result


def _read_recipes(folder: Path, raw: Raw) -> list[Raw]:
    """Return the recipes that a configuration names, each once and after the recipes that it names itself."""
    recipes: dict[str, Raw] = {}

    def add(names: Any, where: str, above: tuple[str, ...]) -> None:
        """Read recipes that are not read yet, after the recipes that they name; refuse a circle."""
        if not isinstance(names, list):
            found = shortened(json.dumps(names, default=str))
            raise UserError(f"{where} is {found}; allowed: list")
        for name in map(str, names):
            if name in above:
                circle = " → ".join((*above[above.index(name) :], name))
                raise UserError(f"{where}: recipes name each other in a circle: {circle}")
            if name not in recipes:
                recipe = _read_recipe(folder, name, where)
                inner = f"{folder / name}.yaml: recipes"
                add(recipe.get("recipes") or [], inner, (*above, name))
                recipes[name] = recipe

    add(raw.get("recipes") or [], "recipes", ())
    return list(recipes.values())


def _read_recipe(folder: Path, name: str, where: str) -> Raw:
    known = [path.stem for path in folder.glob("*.yaml")]
    if name not in known:  # a path is not one of these names
        raise UserError(f"{where}: {printable(name)} is unknown{nearest(name, known)}")
    path = folder / f"{name}.yaml"
    recipe = mapping(path, read_own(path))
    # any other value would replace the models of other recipes
    if not isinstance(models := recipe.get("models", {}), dict):
        raise UserError(no_object(f"{path}: models", models))
    return dict(recipe)


def merged(under: Any, *over: Any) -> Any:
    """Merge mappings key by key; any other value replaces the one below it. The result shares no value with these."""
    return _copied(reduce(overlaid, over, under))


def overlaid(under: Any, over: Any) -> Any:
    """Return `merged` of two; values that only one of them has are shared with it: do not modify them."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    result = {str(key): value for key, value in under.items()}
    for key, value in over.items():
        result[str(key)] = overlaid(result[str(key)], value) if str(key) in result else value
    return result


def with_nulls(value: Any) -> Any:
    """Return the same with None for the text `null`: Snakemake writes this for a null within a value of `--config`."""
    return _copied(value, nulls=True)


def _copied(value: Any, nulls: bool = False) -> Any:
    if isinstance(value, dict):
        return {str(key): _copied(item, nulls) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item, nulls) for item in value]
    return None if nulls and value == "null" else value


def with_likes(models: Raw, same: Container[str]) -> tuple[Raw, list[str]]:
    """Return every model's own keys merged over those of the model it is `like`, except `same`.

    Null leaves a model out.
    """
    models = {name: entry for name, entry in models.items() if entry is not None}
    result, wrong = {}, []
    for name, entry in models.items():
        try:
            result[name] = (
                _with_like(name, models) if isinstance(entry, dict) and name not in same else entry
            )
        except UserError as error:
            wrong.append(str(error))
    return result, wrong


def _with_like(name: str, models: Raw, opened: tuple[str, ...] = ()) -> Raw:
    """Return a model's own keys merged over those of the model it is `like`."""
    if name in opened:
        cycle = opened[opened.index(name) :]
        first = cycle.index(min(cycle))
        names = [*cycle[first:], *cycle[:first], cycle[first]]
        raise UserError(f"models.{printable(names[0])}.like forms a cycle: {' -> '.join(names)}")
    base, own = (
        models[name].get("like"),
        {key: value for key, value in models[name].items() if key != "like"},
    )
    if base is None:
        return own
    if not isinstance(base, str) or base not in models:
        hint = nearest(str(base), [other for other in models if other != name])
        raise UserError(
            f"models.{printable(name)}.like is {printable(base)}, which is not a model{hint}"
        )
    if not isinstance(models[base], dict):
        raise UserError(no_object(f"models.{printable(base)}", models[base]))
    return dict(overlaid(_with_like(base, models, (*opened, name)), own))


def without_inherited(lines: dict[str, list[str]], entries: Raw) -> list[str]:
    """Return the lines about a block's entries, without those that a model has only because it is `like` another."""
    own = []
    for name, mistakes in lines.items():
        base = entries[name].get("like") if isinstance(entries[name], dict) else None
        of_base = {
            line.replace(f"models.{base}", f"models.{name}", 1) for line in lines.get(str(base), ())
        }
        own += [line for line in mistakes if line not in of_base]
    return own


def inherited(datasets: dict[str, Dataset]) -> tuple[dict[str, Dataset], list[str]]:
    """Return the datasets, with what `Inheriting` ones take over from the dataset that they are `of`, and the mistakes.

    Datasets that are `of` the searched one, and datasets made of these, wait for `of_searched`.
    """
    result, wrong = dict(datasets), []
    for name, entry in datasets.items():
        try:
            result[name] = _completed(name, datasets) or entry
        except UserError as error:
            wrong.append(str(error))
    return result, wrong


def of_searched(datasets: dict[str, Dataset], searched: str) -> dict[str, Dataset]:
    """Return the datasets; each with `of: null`, except the searched one itself, is now `of` the searched one."""
    result = dict(datasets)
    for name, entry in datasets.items():
        if not isinstance(entry, OfSearched) or entry.of is not None:
            continue
        if searched in datasets and name != searched:
            result[name] = entry.model_copy(update={"of": searched})
    return {name: _completed(name, result) or entry for name, entry in result.items()}


def _completed(
    name: str, datasets: dict[str, Dataset], above: tuple[str, ...] = ()
) -> Dataset | None:
    """Return a dataset's entry with the keys that it takes over from the one that it is `of`, once that is completed.

    Return None if that one is, or is made of, the dataset that is searched.

    Args:
        above: the datasets that are made of this one.
    """
    entry = datasets[name]
    if not isinstance(entry, Inheriting):
        return entry
    if entry.of is None:
        return None
    opened = (*above, name)
    if entry.of not in datasets:
        hint = nearest(entry.of, list(datasets))
        raise UserError(
            f"datasets.{name}.of is {printable(entry.of)}, which is not a dataset{hint}"
        )
    if entry.of in opened:
        raise UserError(f"datasets form a cycle: {' -> '.join([*opened, entry.of])}")
    base = _completed(entry.of, datasets, opened)
    if base is None:
        return None
    update = {key: getattr(base, key) for key in INHERITED if key not in entry.model_fields_set}
    if not (entry.measures or isinstance(entry, CutDocuments)):
        update["measures"] = base.measures
    return entry.complete(name, update)
