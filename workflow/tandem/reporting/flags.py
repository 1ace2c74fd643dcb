"""Flags of the commands that are not stages: `--name value`, each at most once."""

import json

from tandem.errors import UserError


def read_flags(words: list[str], required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """`["--out", "x"]` → `{"out": "x"}`.

    Raises:
        UserError: an unknown flag, one twice, one without a value, or a required one that is missing.
    """
    allowed = ", ".join(f"--{name}" for name in (*required, *optional))
    if len(words) % 2:
        raise UserError(f"{words[-1]}: has no value; flags are {allowed}, each followed by one")
    flags: dict[str, str] = {}
    for flag, text in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--")
        if not flag.startswith("--") or name not in (*required, *optional) or name in flags:
            raise UserError(f"{flag}: {'given twice' if name in flags else 'unknown'}; flags are {allowed}")
        flags[name] = text
    for name in required:
        if name not in flags:
            raise UserError(f"--{name}: missing; flags are {allowed}")
    return flags


def read_rows(text: str) -> list[dict[str, str]]:
    """`--rows`: a JSON list of objects with exactly system, first_stage and scores (a score artifact's folder)."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise UserError(f"--rows: not valid JSON ({error})") from None
    keys = {"system", "first_stage", "scores"}
    if not isinstance(rows, list) or not rows or any(not isinstance(r, dict) or set(r) != keys for r in rows):
        raise UserError(
            '--rows: is not a JSON list, not empty, of {"system": …, "first_stage": …, "scores": "<folder>"}'
        )
    return [{key: row[key] or "" for key in sorted(keys)} for row in rows]
