"""Flags of the commands that are not stages: `--name value`, each at most once; types of those that others have."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token
from pydantic import TypeAdapter, ValidationError

from tandem.config.base import Model
from tandem.errors import UserError

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
    _require_csv(Path, out)
    return out


def _require_csv(_: Any, out: Path) -> None:
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")


def _parse_json(kind: Any, tokens: Sequence[Token]) -> Any:
    (token,) = tokens
    try:
        return TypeAdapter(kind).validate_json(token.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{token.keyword}: {f'{where}: ' if where else ''}{first['msg']}") from None


CsvOut = Annotated[Path, Parameter(validator=_require_csv)]  # the other formats go beside it
Files = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")]
# A value that pydantic reads.
JSON = Parameter(converter=_parse_json, n_tokens=1, accepts_keys=False, json_list=False, negative="")


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
