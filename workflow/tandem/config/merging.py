"""What is taken over: keys of files and recipes, of the model one is `like`, of the dataset that windows are `of`."""

from collections.abc import Container
from functools import reduce
from typing import Any

from tandem.config.datasets import UNSPACED, Dataset, Unlabelled, Windows
from tandem.config.validation import no_object
from tandem.errors import UserError, nearest, printable

Raw = dict[str, Any]  # what YAML or Snakemake gives: not validated
INHERITED = ("language", "analyzer", "relevance", "match", "score_split")
"""What windows and unlabelled datasets take over from the dataset that they are `of`, where they do not say it."""
INHERITING = (Windows, Unlabelled)


def merged(under: Any, *over: Any) -> Any:
    """Merge mappings key by key; any other value replaces the one below it. Nothing is shared with what is merged."""
    return _copied(reduce(overlaid, over, under))


def overlaid(under: Any, over: Any) -> Any:
    """`merged` of two, where what only one of them has is shared: to be read alone."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    result = {str(key): value for key, value in under.items()}
    for key, value in over.items():
        result[str(key)] = overlaid(result[str(key)], value) if str(key) in result else value
    return result


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def with_nulls(value: Any) -> Any:
    """The same with None for the text `null`, which Snakemake makes of a null within a value of `--config`."""
    if isinstance(value, dict):
        return {str(key): with_nulls(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_nulls(item) for item in value]
    return None if value == "null" else value


def with_likes(models: Raw, same: Container[str]) -> tuple[Raw, list[str]]:
    """Every model's own keys merged over those of the model it is `like`, except `same`; null leaves a model out."""
    models = {name: entry for name, entry in models.items() if entry is not None}
    result, wrong = {}, []
    for name, entry in models.items():
        try:
            result[name] = _with_like(name, models) if isinstance(entry, dict) and name not in same else entry
        except UserError as error:
            wrong.append(str(error))
    return result, wrong


def _with_like(name: str, models: Raw, opened: tuple[str, ...] = ()) -> Raw:
    """A model's own keys merged over those of the model it is `like`."""
    if name in opened:
        cycle = opened[opened.index(name) :]
        first = cycle.index(min(cycle))
        names = [*cycle[first:], *cycle[:first], cycle[first]]
        raise UserError(f"models.{printable(names[0])}.like forms a cycle: {' -> '.join(names)}")
    base, own = models[name].get("like"), {key: value for key, value in models[name].items() if key != "like"}
    if base is None:
        return own
    if not isinstance(base, str) or base not in models:
        hint = nearest(str(base), list(models))
        raise UserError(f"models.{printable(name)}.like is {printable(base)}, which is no model{hint}")
    if not isinstance(models[base], dict):
        raise UserError(no_object(f"models.{printable(base)}", models[base]))
    return dict(merged(_with_like(base, models, (*opened, name)), own))


def without_inherited(lines: dict[str, list[str]], entries: Raw) -> list[str]:
    """The lines about a block's entries, without those that a model has only because it is `like` another."""
    own = []
    for name, mistakes in lines.items():
        base = entries[name].get("like") if isinstance(entries[name], dict) else None
        of_base = {line.replace(f"models.{base}", f"models.{name}", 1) for line in lines.get(str(base), ())}
        own += [line for line in mistakes if line not in of_base]
    return own


def inherited(datasets: dict[str, Dataset]) -> tuple[dict[str, Dataset], list[str]]:
    """Fill in what windows and unlabelled datasets take over from the dataset that they are `of`; and the mistakes."""
    result, wrong = dict(datasets), []
    for name, entry in datasets.items():
        if isinstance(entry, INHERITING):
            try:
                result[name] = _completed(name, entry, datasets)
            except UserError as error:
                wrong.append(str(error))
    return result, wrong


def _completed(name: str, entry: Windows | Unlabelled, datasets: dict[str, Dataset]) -> Dataset:
    origin = _origin(name, datasets)
    update = {key: getattr(origin, key) for key in INHERITED if key not in entry.model_fields_set}
    if isinstance(entry, Unlabelled):
        return entry.model_copy(update=update if entry.measures else {**update, "measures": origin.measures})
    spaced = update.get("language", entry.language) not in UNSPACED
    unit = entry.unit or ("words" if spaced else "characters")
    if entry.stride > entry.length:
        raise UserError(
            f"datasets.{name}.stride is {entry.stride}, which skips {unit} between windows of length {entry.length}; "
            f"allowed: ≤ {entry.length}"
        )
    return entry.model_copy(update={**update, "unit": unit})


def _origin(name: str, datasets: dict[str, Dataset]) -> Dataset:
    """The dataset that a derived one inherits from, through windows of windows."""
    opened, entry = [name], datasets[name]
    while isinstance(entry, INHERITING):
        if entry.of not in datasets:
            hint = nearest(entry.of, list(datasets))
            raise UserError(f"datasets.{opened[-1]}.of is {printable(entry.of)}, which is no dataset{hint}")
        if entry.of in opened:
            raise UserError(f"datasets form a cycle: {' -> '.join([*opened, entry.of])}")
        opened.append(entry.of)
        entry = datasets[entry.of]
    return entry
