"""Types of flags that several commands have, and the files that planning writes for commands."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token
from pydantic import TypeAdapter, ValidationError

from tandem.config.base import Model
from tandem.errors import UserError

M = TypeVar("M", bound=Model)


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
