"""The commands `table` and `show`: a paper's table in every format; and flags and files that other pages share."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter, Token
from pydantic import TypeAdapter, ValidationError

from tandem.config.base import Model
from tandem.config.table_layouts import TABLE_FORMATS
from tandem.errors import UserError, nearest
from tandem.evaluation.layouts import TablePlan, name_system
from tandem.report import formats
from tandem.report.filling import fill_table
from tandem.report.grids import align_text, write_markdown
from tandem.report.results import find_view, is_sweep, list_table_names, read_table
from tandem.report.scored import (
    ScoredRow,
    collect_lines,
    read_scored,
    warn_of_few_seeds,
)
from tandem.store.artifact import Artifact
from tandem.store.files import write_text
from tandem.store.job import load
from tandem.store.lineage import walk

_Plan = TypeVar("_Plan", bound=Model)


def _require_csv(_: Any, out: Path) -> None:
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")


def _take_first(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))


def _parse_json(kind: Any, tokens: Sequence[Token]) -> Any:
    try:
        return TypeAdapter(kind).validate_json(tokens[0].value)
    except ValidationError as error:
        raise UserError(f"{tokens[0].keyword}: {_take_first(error)}") from None


CsvOut = Annotated[Path, Parameter(validator=_require_csv)]  # other formats are written next to it
CsvFiles = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="")]
# a flag whose value is JSON, which pydantic parses
JSON = Parameter(
    converter=_parse_json, n_tokens=1, accepts_keys=False, json_list=False, negative=""
)


def read_plan(flag: str, path: Path, kind: type[_Plan], expected: str) -> _Plan:
    """Return a file that planning wrote; a `UserError` if it cannot be read or is not `expected`."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"--{flag}: {path} cannot be read: {os.strerror(error.errno or 0)}"
        ) from None
    except ValidationError as error:
        raise UserError(
            f"--{flag}: {path} is not {expected} ({_take_first(error)}); snakemake writes it"
        ) from None


def write_views(out: Path, texts: Mapping[str, str]) -> None:
    """Write the formats of a table next to each other, by the endings of their files."""
    for suffix, text in texts.items():
        write_text(out.with_suffix(suffix), text)


def write_table(*, plan: Path, out: CsvOut) -> None:
    """Write a table in every format.

    Args:
        plan: the table's layout and bands, and for each row, dataset and seed the folder of its scores; planning
            writes it.
        out: the table as CSV; the other formats are written next to it as .md, .tex, .html and .json, which `show` and
            `report` read.
    """
    planned = read_plan("plan", plan, TablePlan, "a table's plan")
    scored = read_scored([row for row in planned.rows if not row.absent])
    _check_rows(planned, scored)
    stages = walk(score.artifact for score in scored).values()
    notes, warnings = (collect_lines(stages, fact) for fact in ("notes", "warnings"))
    notes = [
        f"{planned.layout.name_dataset(name)} is not measured: {reason}"
        for name, reason in planned.skipped.items()
    ] + notes
    table = fill_table(planned, scored)
    if table.has_tests:
        by_system: dict[object, list[Artifact]] = {}
        for score in scored:
            by_system.setdefault((score.system, score.place), []).append(score.artifact)
        warnings += warn_of_few_seeds(by_system.values())
    table = replace(table, notes=notes + table.notes, warnings=warnings)
    grids = [
        grid for grid in (formats.make_table_grid(table), formats.make_orders_grid(table)) if grid
    ]
    texts = {
        ".csv": formats.write_csv(table),
        ".json": table.to_json(),
        ".md": "\n".join(map(write_markdown, grids)),
    }
    for ending, write in TABLE_FORMATS.items():
        texts[ending] = load(write)(table, grids, out)
    write_views(out, texts)


def _check_rows(plan: TablePlan, scored: Sequence[ScoredRow]) -> None:
    """Refuse scores unless they are of exactly the layout's rows that are not quoted."""
    needed = [row.id for row in plan.layout.rows if not row.quoted]
    present = [score.system for score in scored]
    absent = [row.id for row in plan.rows if row.absent]
    wrong = [(system, "has no scores") for system in needed if system not in present + absent]
    wrong += [(system, "is not a row of the layout") for system in present if system not in needed]
    if wrong:
        system, problem = wrong[0]
        names = ", ".join(map(name_system, needed))
        raise UserError(f"{plan.name}: {name_system(system)} {problem}; its rows are {names}")


def show(table: Path, /) -> None:
    """Print a table, aligned, with every p-value, and the orders that are tested below it.

    Args:
        table: a file results/tables/<table>.csv, written by Snakemake, or only the table's name: `summary`, or
            `mine/summary` for mine.yaml.
    """
    own = table.with_suffix(".json") if table.name else table  # '' and . and / have none
    named = table.suffix != ".csv" and not own.is_file()  # a name may hold dots
    path = find_view(str(table)) if named else own
    if path.is_file() and is_sweep(path):
        page = path.with_suffix(".html")
        text = path.with_suffix(".md")
        raise UserError(f"{table}: is a sweep, not a table; open its page {page}, or {text}")
    if named and not path.is_file() and (finished := list_table_names()):
        raise UserError(f"{table}: is not a table{nearest(str(table), finished)}")
    filled = read_table(path)
    print(align_text(formats.make_table_grid(filled, terminal=True)))
    if orders := formats.make_orders_grid(filled):
        print(f"\n{align_text(orders)}")
