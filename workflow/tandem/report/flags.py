"""Flags of the commands that are not stages: `--name value`, each at most once."""

import os
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from tandem.config.base import Model
from tandem.errors import UserError
from tandem.evaluation.layouts import PlannedRow

T = TypeVar("T")
M = TypeVar("M", bound=Model)


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


def parse_json(flag: str, text: str, kind: type[T], expected: str) -> T:
    """The JSON value of a flag; a `UserError` where it is not valid or not `expected`."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise UserError(f"--{flag}: not valid JSON ({first['msg']})") from None
        raise UserError(f"--{flag}: is not {expected}") from None


def parse_rows(text: str) -> list[PlannedRow]:
    """`--rows`: a JSON list of systems with the folders of their scores."""
    expected = 'a JSON list, not empty, of {"system": …, "first_stage": …, "scores": "<folder>"}'
    rows = parse_json("rows", text, list[PlannedRow], expected)
    if not rows:
        raise UserError(f"--rows: is not {expected}")
    return rows


def read_plan(flag: str, path: Path, kind: type[M], expected: str) -> M:
    """A file that planning wrote; a `UserError` where it cannot be read or is not `expected`."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"--{flag}: {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise UserError(f"--{flag}: {path} is not {expected} ({where}{first['msg']}); snakemake writes it") from None
