"""Parameters as flags of a command line and back: dotted paths, and values as text."""

import json
from typing import Any

Json = dict[str, Any]  # an object as JSON has it: resolved parameters, facts


def flatten(params: Json, prefix: str = "") -> Json:
    """`{"a": {"b": 1}}` → `{"a.b": 1}`; lists and empty mappings are values."""
    flat: Json = {}
    for name, value in params.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def nest(flat: Json) -> Json:
    """`{"a.b": 1}` → `{"a": {"b": 1}}`."""
    nested: Json = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        at = nested
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return nested


def format_value(value: Any) -> str:
    """A value as the command line reads it back: plain text where that is unambiguous, else JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value)


def parse_value(text: str) -> Any:
    """A flag's value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
