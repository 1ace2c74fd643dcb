"""A JSON schema as the configuration needs it: text turned into numbers, defaults filled in, one line per mistake."""

import json
import math
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from tandem.errors import NAME as NAME
from tandem.errors import UserError
from tandem.errors import nearest as nearest
from tandem.errors import printable as shown
from tandem.errors import shortened as _short

WORDS = {"true": True, "false": False, "null": None}
DEEPEST, MOST = 100, 100_000  # levels and values of a configuration: far more than any needs


def limited(config: dict[Any, Any]) -> None:
    """Refuse what cannot be walked through: YAML's anchors let a few lines hold themselves, or billions of values.

    Raises:
        UserError: names the place that is nested too deep, or the upper key that holds too much.
    """
    for upper, held in config.items():
        waiting: list[tuple[Any, tuple[Any, ...]]] = [(held, (upper,))]
        seen = 0
        while waiting:
            value, at = waiting.pop()
            seen += 1
            inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            if inner and len(at) > DEEPEST:
                place = ".".join(shown(key) for key in at[:4])
                raise UserError(f"{place} contains itself, or is nested deeper than {DEEPEST} levels")
            if seen > MOST:
                raise UserError(f"{shown(upper)} holds more than {MOST:,} values; allowed: fewer")
            waiting += [(item, (*at, key)) for key, item in inner]


def typed(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """A value with the types and defaults its schema says.

    Snakemake hands nested values of `--config` over as text, and YAML reads `1e-5` as text: where the schema wants a
    number, a boolean or null, text that is one becomes one. A number is a float, so that 1 and 1.0 are the same value.
    What does not fit stays as it is, for `mistakes` to name.
    """
    schema = resolve(schema, root)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if isinstance(value, dict) and ("object" in types or "properties" in schema):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        made = {}
        for key, item in value.items():
            inner = known.get(key, other if isinstance(other, dict) else None)
            made[str(key)] = item if inner is None else typed(item, inner, root)
        for key, inner in known.items():
            told = resolve(inner, root)
            if key not in made and "default" in told:
                made[key] = typed(told["default"], inner, root)
        return made
    if isinstance(value, list):
        return [typed(item, schema.get("items", {}), root) for item in value]
    if isinstance(value, str) and "string" not in types:
        value = _read(value, types, schema.get("enum", []))
    if isinstance(value, int) and not isinstance(value, bool) and "number" in types:
        with suppress(OverflowError):  # no float is as large; `mistakes` names it
            return float(value)
    return value


def resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The schema a `$ref` into the same document stands for, with what stands beside it."""
    if "$ref" not in schema:
        return schema
    at: Any = root
    for part in schema["$ref"].removeprefix("#/").split("/"):
        at = at[part]
    return {**at, **{key: item for key, item in schema.items() if key != "$ref"}}


def _read(text: str, types: list[str], allowed: list[Any]) -> Any:
    """Text as a number, boolean or null, if the schema takes one."""
    if text in WORDS and ((text == "null" and ("null" in types or None in allowed)) or "boolean" in types):
        return WORDS[text]
    for name, read in (("integer", int), ("number", float)):
        if name in types:
            try:
                return read(text)
            except ValueError:
                continue
    return text


def _integer(checker: Any, value: Any) -> bool:
    """Whether a value is a whole number that every program reads back alike (RFC 8259 §6)."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _number(checker: Any, value: Any) -> bool:
    """Whether a value is a number: neither infinite nor none at all, which YAML can say too."""
    return _integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


_VALIDATOR = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _integer).redefine("number", _number),
)


def mistakes(value: Any, schema: dict[str, Any], root: dict[str, Any], prefix: str = "") -> list[str]:
    """One line per mistake: the dotted path, what was found, what is allowed; sorted by path."""
    full = {**resolve(schema, root), "$defs": root.get("$defs", {})}
    errors = sorted(_VALIDATOR(full).iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path])
    return list(dict.fromkeys(line for error in errors for line in _lines(error, prefix)))


def _lines(error: ValidationError, prefix: str) -> list[str]:
    path = ".".join([*([prefix] if prefix else []), *(shown(part) for part in error.absolute_path)])
    here = f"{path}." if path else ""
    instance: Any = error.instance
    found = f"{path or 'the configuration'} is {_short(json.dumps(instance, default=str, ensure_ascii=False))}"
    told: Any = error.schema
    wanted: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = list(told.get("properties", {}))
            unknown = [key for key in instance if key not in known]
            return [f"{here}{shown(key)} is not a known key{nearest(key, known)}" for key in unknown]
        case "required":
            missing = [key for key in wanted if key not in instance]
            return [f"{here}{key} is missing" for key in missing]
        case "type":
            return [f"{found}; allowed: {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"]
        case "enum":
            return [f"{found}; allowed: {', '.join('null' if v is None else str(v) for v in wanted)}"]
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            sign = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}[error.validator]
            return [f"{found}; allowed: {sign} {wanted}"]
        case _:
            return [f"{found}; {_short(shown(error.message))}"]
