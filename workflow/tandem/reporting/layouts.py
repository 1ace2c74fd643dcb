"""Reading layouts: a file checked, baselines found, printed values looked up."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tandem.errors import UserError
from tandem.reporting.layout import Column, Layout, LayoutRow, System, beside, name
from tandem.reporting.printed_numbers import Numbers, read_numbers


def read_layout(path: Path, schema: str, where: str) -> dict[str, Any]:
    """A layout file's content, checked against a schema of `assets/`.

    Args:
        path: the file.
        schema: the schema's name.
        where: where such layouts are, for the error.
    Raises:
        UserError: a missing file, no YAML, or a key or type that is not allowed.
    """
    try:
        return dict(checked(path, schema, "the layout"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such layout; layouts are {where}") from None


def checked(path: Path, schema: str, whole: str) -> Any:
    """A YAML file's content, checked against a schema of `assets/`; `whole` names all of it in an error.

    Raises:
        UserError: no YAML, or a key or type that is not allowed.
        FileNotFoundError: a missing file.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    allowed = json.loads((files("tandem.reporting") / "assets" / schema).read_text(encoding="utf-8"))
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(allowed).iter_errors(content))
    if wrong is not None:
        place = ".".join(map(str, wrong.absolute_path)) or whole
        raise UserError(f"{path}: {place}: {wrong.message}")
    return content


def load_layout(path: Path) -> Layout:
    """Read and check a layout.

    A row's baseline is its own `baseline`, else the row of its first stage, else the table's `baseline`.

    Raises:
        UserError: a missing file, a key or type that is not allowed, two rows of one system and first stage, a value
            printed for a measure without a column, or a baseline that is not a row.
    """
    content = read_layout(path, "layout.schema.json", "config/papers/<paper>/<table>.yaml")
    columns = [_column(told) for told in content.get("columns", [])]
    told, numbers = content.get("printed_from"), None
    if told is not None:
        if (file := beside(path, "printed.csv")) is None:
            raise UserError(f"{path}: printed_from: there is no printed.csv beside it or in the folder above")
        numbers = read_numbers(file, told["source"], told["table"])
    return Layout(
        title=content["title"],
        paper=content.get("paper"),
        printed_on=content.get("printed_on"),
        decimals=content.get("decimals", 2),
        note=content.get("note", ""),
        columns=columns,
        rows=_rows(path, content, columns, numbers),
        subset=content.get("subset", ""),
        recipes=tuple(content.get("recipes", ())),
        same=content.get("same", {}),
        configs=content.get("configs", {}),
    )


def _column(told: dict[str, Any]) -> Column:
    """A column of a layout file."""
    return Column(**{"name": told["measure"], **told})


def _rows(path: Path, content: dict[str, Any], columns: list[Column], numbers: Numbers | None) -> list[LayoutRow]:
    """The rows with their baselines and printed values found."""
    ids = [(row["system"], row.get("first_stage", "")) for row in content["rows"]]
    quoted = {own for row, own in zip(content["rows"], ids, strict=True) if row.get("quoted")}
    rows = []
    for at, (row, own) in enumerate(zip(content["rows"], ids, strict=True)):
        if own in ids[:at]:
            raise UserError(f"{path}: rows.{at}: {name(own)} is there twice; each system and first stage once")
        if ("run" in row) == (own in quoted):
            raise UserError(f"{path}: rows.{at}: {name(own)} needs a run, or quoted: true and none")
        printed, wrong = _printed(f"{path}: rows.{at}", row, columns, numbers)
        baseline = None if own in quoted else _baseline(f"{path}: rows.{at}", content, row, ids)
        if baseline in quoted:
            raise UserError(f"{path}: rows.{at}: baseline {name(baseline)} is quoted; a test needs its run")
        row = {"run": "", "hidden": False, "labels": "", "variant": "", "dataset": "", "quoted": False, **row}
        kept = {key: row[key] for key in ("run", "hidden", "labels", "variant", "dataset", "quoted")}
        kept |= {"changes": row.get("with", {}), "changes_own": row.get("with_own", {})}
        kept["columns"] = tuple(row.get("columns", ()))
        found = None if baseline == own else baseline
        rows.append(LayoutRow(*own, printed=printed, wrong=wrong, baseline=found, **kept))
    return rows


def _baseline(where: str, content: dict[str, Any], row: dict[str, Any], ids: list[System]) -> System | None:
    """The row that a row is tested against: its own, else its first stage's, else the table's."""
    told = row.get("baseline") or content.get("baseline")
    baseline = (told["system"], told.get("first_stage", "")) if told else None
    if "baseline" not in row and (row.get("first_stage"), "") in ids:
        baseline = (row["first_stage"], "")
    if baseline is not None and baseline not in ids:
        allowed = ", ".join(map(name, ids))
        raise UserError(f"{where}: baseline {name(baseline)} is not a row; the rows are {allowed}")
    return baseline


def _printed(
    where: str, row: dict[str, Any], columns: list[Column], numbers: Numbers | None
) -> tuple[dict[str, float | None], dict[str, str]]:
    """A row's printed values by column, and why some of them are known to be wrong."""
    told = row.get("printed", {})
    if isinstance(told, dict) and "system" not in told:
        for measure in told:
            if measure not in {column.id for column in columns}:
                raise UserError(f"{where}.printed.{measure}: no such column; add it to columns")
        return told, {}
    if numbers is None:
        raise UserError(f"{where}.printed: names a system, but the layout has no printed_from: {{source, table}}")
    asked = told if isinstance(told, dict) else {"system": told}
    return numbers.of_row(f"{where}.printed", asked["system"], asked.get("setting", ""), columns)
