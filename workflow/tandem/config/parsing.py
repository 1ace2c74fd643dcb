"""Turn values into models, or into one line per mistake: the dotted path, what was found, what is allowed."""

import json
import os
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tandem.config.base import Extensible
from tandem.errors import UserError, nearest, printable, shortened
from tandem.redaction import restored

_M = TypeVar("_M", bound=BaseModel)
DEEPEST, MOST = 100, 100_000  # levels and values of a configuration: far more than any needs
_LARGEST = 2**53  # integers below it are read back alike by every program (RFC 8259 §6)
WORDS = {"true": True, "false": False, "null": None}
SIGNS = {"greater_than": ("gt", ">"), "greater_than_equal": ("ge", "≥"), "less_than": ("lt", "<")}
SIGNS["less_than_equal"] = ("le", "≤")
NAMES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def read(model: type[_M], value: object, at: str = "") -> _M:
    """Validate a value, which is at a dotted path; a `UserError` has one line per mistake."""
    result, lines = parse(model, value, at)
    if result is None:
        raise UserError("\n".join(lines))
    return result


def parse(model: type[_M], value: object, at: str = "") -> tuple[_M | None, list[str]]:
    """Validate a value; return the model and no lines, or no model and one line per mistake, sorted by path.

    Snakemake passes nested values of `--config` on as text, and YAML reads `1e-5` as text: where a number, a boolean
    or null is needed, text that represents one is converted.
    """
    result, details = _validated(model, value)
    typed = value
    for detail in details:
        if isinstance(detail["input"], str):
            place = _place(model, detail["loc"])
            item = _from_text(detail["input"], place.annotation)
            if item != detail["input"]:  # another branch of a union may not know the key
                typed = _replaced(typed, place.path, item)
    if typed is not value:
        result, details = _validated(model, typed)
    places = [
        (_place(model, detail["loc"]), detail)
        for detail in details
        if not _follows(detail, details)
    ]
    lines = [(place.path, _line(place, detail, at)) for place, detail in _of_best_branches(places)]
    lines.sort(key=lambda line: [str(key) for key in line[0]])
    return result, list(dict.fromkeys(line for _, line in lines))


def _validated(model: type[_M], value: object) -> tuple[_M | None, list[ErrorDetails]]:
    try:
        return model.model_validate(value, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _follows(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Return whether a list is too short only because of its wrong items."""
    above = (
        other["loc"][: len(detail["loc"])] for other in details if other["loc"] != detail["loc"]
    )
    return detail["type"] == "too_short" and detail["loc"] in above


def with_secrets(value: dict[str, Any], at: str) -> dict[str, Any]:
    """Return values of a command line with the secrets that the environment has for it, see `redaction.set_aside`.

    Raises:
        UserError: the environment lacks one; the line begins with `at`.
    """
    try:
        return dict(restored(value, os.environ))
    except KeyError as error:
        problem = f"the environment variable {error.args[0]} is not set; it holds a secret of a URL"
        raise UserError(f"{at}: {problem}, and is set where Snakemake runs the command") from None


def no_object(at: str, value: object) -> str:
    """Return the line about a value, which is at a dotted path, where keys with values are needed."""
    return (
        f"{at} is {shortened(json.dumps(value, default=str, ensure_ascii=False))}; allowed: mapping"
    )


def refuse_too_large(config: Mapping[Any, Any]) -> None:
    """Refuse what is too large to walk through: YAML's anchors let a few lines hold themselves or billions of values.

    Raises:
        UserError: names the place that is nested too deep, the top-level key that holds too much, or the numbers that
            are too large or not finite.
    """
    numbers = []
    for upper, block in config.items():
        waiting: list[tuple[Any, tuple[Any, ...]]] = [(block, (upper,))]
        seen = 0
        while waiting:
            value, at = waiting.pop()
            seen += 1
            inner = (
                value.items()
                if isinstance(value, dict)
                else enumerate(value)
                if isinstance(value, list)
                else ()
            )
            if inner and len(at) > DEEPEST:
                place = ".".join(printable(key) for key in at[:4])
                raise UserError(
                    f"{place} contains itself, or is nested deeper than {DEEPEST} levels"
                )
            if seen > MOST:
                raise UserError(
                    f"{printable(upper)} holds more than {MOST:,} values; allowed: fewer"
                )
            if isinstance(value, int | float) and not -_LARGEST < value < _LARGEST:
                place = ".".join(printable(key) for key in at)
                numbers.append(
                    f"{place} is {shortened(str(value))}; allowed: finite numbers below 2^53"
                )
            waiting += [(item, (*at, key)) for key, item in inner]
    if numbers:
        raise UserError("\n".join(sorted(numbers)))


def branches(annotation: Any) -> list[Any]:
    """Return the types of a union, or the classes of an extensible section; any other type is returned by itself."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [inner for branch in get_args(annotation) for inner in branches(branch)]
    if isinstance(annotation, type) and issubclass(annotation, Extensible):
        return [*annotation.list_classes()]
    return [annotation]


def allowed(annotation: Any) -> str:
    """Return what a type allows, in YAML's words: `integer or null`; the values where they can be listed."""
    options = branches(annotation)
    values = [
        value for branch in options if get_origin(branch) is Literal for value in get_args(branch)
    ]
    if values:
        return ", ".join([*map(str, values), *(["null"] if type(None) in options else [])])
    kinds = (
        NAMES.get(branch) or ("list" if get_origin(branch) in (tuple, list) else "mapping")
        for branch in options
    )
    return " or ".join(dict.fromkeys(kinds))


class _Place(NamedTuple):
    """Where an error is."""

    path: tuple[str | int, ...]  # its keys
    annotation: Any  # the type that is needed there; None for an unknown key
    known: list[str]  # the keys of the section that it is in
    # the innermost union of types above it: its keys, the union, and the branch that the error belongs to
    union: tuple[tuple[str | int, ...], Any, str] | None


def _place(model: type[BaseModel], location: tuple[str | int, ...]) -> _Place:
    annotation: Any = model
    path: list[str | int] = []
    known: list[str] = []
    union = None
    for key in location:
        options = [branch for branch in branches(annotation) if branch is not type(None)]
        if len(options) > 1:
            union = (tuple(path), annotation, str(key))
            annotation = next(
                (option for option in options if str(key).startswith(_tag(option))), None
            )
            continue
        annotation = options[0] if options else None
        if key == "[key]":
            return _Place(tuple(path), str, known, union)
        path.append(key)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {
                field.alias or name: field.annotation
                for name, field in annotation.model_fields.items()
            }
            known, annotation = list(fields), fields.get(str(key))
        else:
            arguments = get_args(annotation)
            index = 1 if get_origin(annotation) is dict else 0
            annotation = arguments[index] if len(arguments) > index else None
    return _Place(tuple(path), annotation, known, union)


def _tag(annotation: Any) -> str:
    """Return how pydantic's locations begin to name a branch of a union."""
    origin = get_origin(annotation) or annotation
    return str(getattr(origin, "__name__", origin))


def _of_best_branches(
    places: list[tuple[_Place, ErrorDetails]],
) -> Iterator[tuple[_Place, ErrorDetails]]:
    """Yield, for each union that no branch fits, the errors of the best branch, or one error if the type is wrong."""
    unions: dict[tuple[str | int, ...], dict[str, list[tuple[_Place, ErrorDetails]]]] = {}
    for place, detail in places:
        if place.union is None:
            yield place, detail
        else:
            unions.setdefault(place.union[0], {}).setdefault(place.union[2], []).append(
                (place, detail)
            )
    for path, by_branch in unions.items():
        inner = [
            errors
            for errors in by_branch.values()
            if all(len(place.path) > len(path) for place, _ in errors)
        ]
        if inner:
            yield from min(inner, key=lambda errors: (_has_other_tag(errors), len(errors)))
        else:
            place, detail = next(iter(by_branch.values()))[0]
            yield place._replace(annotation=place.union and place.union[1]), detail


def _has_other_tag(errors: list[tuple[_Place, ErrorDetails]]) -> bool:
    """Return whether a branch is of another `type`: a key for which it allows a single value has another value."""
    return any(
        detail["type"] == "literal_error" and len(get_args(place.annotation)) == 1
        for place, detail in errors
    )


def _line(place: _Place, detail: ErrorDetails, at: str) -> str:
    path = ".".join([*([at] if at else []), *(printable(key) for key in place.path)])
    context: Any = detail.get("ctx", {})
    value = f"{path or 'the whole'} is {shortened(json.dumps(detail['input'], default=str, ensure_ascii=False))}"
    match detail["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            first, *others = (key := str(place.path[-1])).split(".")
            nested = (
                f"; write {': {'.join([first, *others])}: …{'}' * len(others)}"
                if first in place.known
                else ""
            )
            return f"{path} is not a known key{nested or nearest(key, place.known)}"
        case "problem":
            return f"{path}{context['message']}".removeprefix(".")
        case "allowed":
            is_optional = {str, type(None)} <= set(branches(place.annotation))
            return f"{value}; allowed: {context['allowed']}{', null' if is_optional else ''}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" as kind:
            key, sign = SIGNS[kind]
            return f"{value}; allowed: {sign} {context[key]:g}"
        case "too_short":
            return f"{value}; allowed: {context['min_length']} or more"
        case "string_pattern_mismatch":
            return f"{value}; allowed: what matches {context['pattern']}"
        case kind if (
            kind.endswith(("_type", "_parsing", "_from_float", "literal_error", "finite_number"))
            and place.annotation is not None
        ):
            return f"{value}; allowed: {allowed(place.annotation)}"
        case _:
            return f"{value}; {shortened(printable(detail['msg']))}"


def _from_text(text: str, annotation: Any) -> object:
    """Return text as the null, boolean or number that a type needs; the text itself if it represents none."""
    needed = branches(annotation)
    word = text.lower()  # YAML knows False and TRUE, too
    if word in WORDS and (type(None) if word == "null" else bool) in needed:
        return WORDS[word]
    for kind in (int, float):
        if kind in needed:
            try:
                number = kind(text)
            except ValueError:
                continue
            return number if -_LARGEST < number < _LARGEST else text
    return text


def _replaced(value: Any, path: tuple[str | int, ...], item: object) -> Any:
    """Return a copy of a value with one item replaced; values off the path to it are shared."""
    if not path:
        return item
    key: Any = path[0]
    result = dict(value) if isinstance(value, dict) else list(value)
    result[key] = _replaced(result[key], path[1:], item)
    return result
