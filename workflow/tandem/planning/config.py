"""The configuration: files put together, values typed, defaults filled in, every mistake named before anything runs.

Later wins: a recipe of config/recipes/, then config/config.yaml and whatever Snakemake merged over it (`--configfile`,
`--config`). Datasets and encoders of the catalogues (config/datasets/, config/encoders/) are there by name.
"""

import copy
from collections.abc import Container, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tandem.errors import UserError
from tandem.planning.indexed import indexes
from tandem.planning.pretrained import MADE, USUAL
from tandem.planning.schema import limited, mistakes, nearest, shown, typed
from tandem.planning.window_datasets import complete_windows

Config = dict[str, Any]
CATALOGUES = ("datasets", "encoders", "indexes")
OWN = ("source", "type", "factory")  # an entry that says one of these is one of its own
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML has it: eight times as fast


def read_yaml(path: Path) -> Any:
    """A YAML file's content; a `UserError` naming the file and line if it cannot be read."""
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
def _parsed(path: Path, changed: int, size: int) -> Any:
    """`read_yaml` of a file as it is at the moment."""
    return read_yaml(path)


def known(path: Path) -> Any:
    """`read_yaml`, once as long as the file stays as it is, for the project's own; nobody may change the result."""
    try:
        seen = path.stat()
    except OSError:
        return read_yaml(path)
    return _parsed(path, seen.st_mtime_ns, seen.st_size)


def gathered(files: Iterable[Path], root: Path) -> Config:
    """config/config.yaml of the checkout with YAML files laid upon it, as Snakemake does with `--configfile`."""
    config: Config = read_yaml(root / "config/config.yaml")
    for file in files:
        if not isinstance(over := read_yaml(file), dict):
            raise UserError(f"{file}: holds {type(over).__name__} and no mapping of keys to values")
        limited(over)
        config = merged(config, over)
    return config


def merged(under: Any, over: Any) -> Any:
    """`over` laid upon `under`: mappings are merged key by key, anything else is replaced."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return copy.deepcopy(over)
    result = {key: copy.deepcopy(value) for key, value in under.items()}
    for key, value in over.items():
        result[str(key)] = merged(result[key], value) if key in result else copy.deepcopy(value)
    return result


def complete(told: Config, root: Path) -> Config:
    """The configuration with catalogues, recipes, types and defaults.

    Args:
        told: what Snakemake gathered.
        root: the checkout, where config/ and workflow/ are.
    Raises:
        UserError: one line per mistake.
    """
    return checked(assembled(told, root), root)


def schemas(root: Path) -> tuple[Config, Config]:
    """The configuration's schema, and the keys of datasets by source; to be read only."""
    schema, sources = (known(root / f"workflow/schemas/{name}.schema.yaml") for name in ("config", "datasets"))
    return {**schema, "$defs": {**schema["$defs"], "file": sources["file"]}}, sources


def assembled(told: Config, root: Path) -> Config:
    """Catalogues, recipes and what is told, one laid upon the other: neither typed nor checked."""
    limited(told)
    recipes = told.get("recipes") or []
    config: Config = {name: catalogue(root / "config" / name) for name in CATALOGUES}
    for name in CATALOGUES:
        # An entry that names its source or type is one of its own, whatever the catalogue has under that name.
        entries = told.get(name)
        for entry, own in entries.items() if isinstance(entries, dict) else ():
            if isinstance(own, dict) and any(key in own for key in OWN):
                config[name].pop(entry, None)
    for name in recipes if isinstance(recipes, list) else ():
        config = merged(config, recipe(root, str(name)))
    made: Config = merged(config, told)
    return made


def checked(config: Config, root: Path) -> Config:
    """An assembled configuration with types and defaults; a `UserError` with one line per mistake."""
    schema, sources = schemas(root)
    config = typed(config, schema, schema)
    wrong = mistakes(config, schema, schema)
    if not wrong:
        # What cannot be seen would break up every message about it; further limits are said where a name is used.
        named = [(block, name) for block, entries in config.items() if isinstance(entries, dict) for name in entries]
        wrong = [f"{block}.{shown(name)}: not a name" for block, name in named if not (name and name.isprintable())]
    if not wrong:
        config["datasets"], wrong = datasets(config["datasets"], sources, schema)
        config["models"], more = models(config["models"], schema)
        config["encoders"], others = encoders(config["encoders"], schema)
        config["indexes"], unfit = indexes(config["indexes"], schema)
        wrong += [*more, *others, *unfit]
        wrong = wrong or complete_windows(config["datasets"])
    if wrong:
        raise UserError("\n".join(dict.fromkeys(wrong)))
    return config


def catalogue(folder: Path) -> dict[str, Any]:
    """Name → entry of every file in a catalogue folder.

    A file holds the entry that it is named after, or that and variants of it: `<file>-<variant>`.
    """
    made: dict[str, Any] = {}
    for path in sorted(folder.glob("*.yaml")):
        for name, entry in known(path).items():
            if name != path.stem and not str(name).startswith(f"{path.stem}-"):
                raise UserError(f"{path}: {name}; a file holds the entry it is named after and {path.stem}-… ones")
            if name in made:
                raise UserError(f"{path}: {name} stands in another file of {folder} too; name it once")
            made[name] = entry
    return made


def recipe(root: Path, name: str) -> Config:
    """A recipe's file."""
    folder = root / "config/recipes"
    if not (folder / f"{name}.yaml").is_file():
        raise UserError(f"recipes: {name} is unknown{nearest(name, [p.stem for p in folder.glob('*.yaml')])}")
    made: Config = known(folder / f"{name}.yaml")
    return made


def datasets(told: dict[str, Any], sources: Config, schema: Config) -> tuple[dict[str, Any], list[str]]:
    """Every dataset typed by its source's keys; and the mistakes."""
    made, wrong = {}, []
    for name, spec in told.items():
        source, known = spec.get("source"), list(sources["sources"])
        if source not in known:
            wrong.append(f"datasets.{name}.source is {source!r}{nearest(str(source), known)}")
            continue
        keys = {**sources["common"], **sources["sources"][source]}
        own = {"type": "object", "additionalProperties": False, "properties": keys}
        made[name] = typed(spec, own, schema)
        wrong += mistakes(made[name], own, schema, f"datasets.{name}")
    return made, wrong


def encoders(told: dict[str, Any], schema: Config) -> tuple[dict[str, Any], list[str]]:
    """Every encoder typed by its source's schema, one that is pre-trained by its objective's; and the mistakes."""
    made, wrong = {}, []
    for name, spec in told.items():
        at, one, objective = f"encoders.{name}", "encoder", spec.get("objective")
        if spec.get("source") == "pretrain":
            if objective not in USUAL:
                wrong.append(f"{at}.objective is {objective!r}; allowed: {', '.join(USUAL)}")
                continue
            if spec.get("start") is not None and (own := [key for key in MADE if key in spec]):
                wrong.append(f"{at}.{own[0]} is told, but {at}.start brings its own; leave it out")
                continue
            one = f"pretrain/{objective}"
        made[name] = typed(spec, {"$ref": f"#/$defs/{one}"}, schema)
        wrong += mistakes(made[name], {"$ref": f"#/$defs/{one}"}, schema, at)
    return made, wrong


def models(told: dict[str, Any], schema: Config, right: Container[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """Every model with `like` resolved, typed by its objective's schema; and the mistakes, except of those `right`."""
    made, wrong, found = {}, [], dict[str, list[str]]()
    told = {name: spec for name, spec in told.items() if spec is not None}
    for name in told:
        try:
            spec = like(name, told, [])
        except UserError as error:
            wrong.append(str(error))
            continue
        objective = spec.get("objective")
        if objective not in ("dual", "cross", "joint"):
            wrong.append(f"models.{name}.objective is {objective!r}; allowed: dual, cross, joint")
            continue
        made[name] = typed(spec, {"$ref": f"#/$defs/{objective}"}, schema)
        if name not in right:
            found[name] = mistakes(made[name], {"$ref": f"#/$defs/{objective}"}, schema, f"models.{name}")
    for name, lines in found.items():
        # Said once, of the model that says it, not again of each that is `like` it.
        base = told[name].get("like")
        wrong += [
            line for line in lines if line.replace(f"models.{name}", f"models.{base}", 1) not in found.get(base, ())
        ]
    return made, wrong


def like(name: str, told: dict[str, Any], opened: list[str]) -> dict[str, Any]:
    """A model's own keys laid upon those of the model it is `like`."""
    if name in opened:
        raise UserError(f"models.{name}.like forms a cycle: {' -> '.join([*opened, name])}")
    spec = dict(told[name])
    base = spec.pop("like", None)
    if base is None:
        return spec
    if not isinstance(base, str) or base not in told:
        raise UserError(f"models.{name}.like is {shown(base)}, which is no model{nearest(str(base), list(told))}")
    made: dict[str, Any] = merged(like(base, told, [*opened, name]), spec)
    return made
