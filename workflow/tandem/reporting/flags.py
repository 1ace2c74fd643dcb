"""Flags of the commands that are not stages: `--name value`, each at most once."""

import json
from pathlib import Path
from typing import Any

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


def csv_out(flags: dict[str, str]) -> Path:
    """`--out`: a CSV; a `UserError` for another ending, since other formats go beside it under the same name."""
    out = Path(flags["out"])
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")
    return out


def read_json(flag: str, text: str) -> Any:
    """What a flag says in JSON; a `UserError` where it is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"--{flag}: not valid JSON ({error})") from None


def read_rows(text: str) -> list[dict[str, str]]:
    """`--rows`: a JSON list of objects with exactly system, first_stage and scores (a score artifact's folder)."""
    rows = read_json("rows", text)
    keys = {"system", "first_stage", "scores"}
    if not isinstance(rows, list) or not rows or any(not _is_row(row, keys) for row in rows):
        raise UserError(
            '--rows: is not a JSON list, not empty, of {"system": …, "first_stage": …, "scores": "<folder>"}'
        )
    return [{key: row[key] or "" for key in sorted(keys)} for row in rows]


def _is_row(row: object, keys: set[str]) -> bool:
    """Whether a row has exactly these keys and texts; the first stage may be null."""
    if not isinstance(row, dict) or set(row) != keys:
        return False
    return all(isinstance(value, str) or (key == "first_stage" and value is None) for key, value in row.items())
