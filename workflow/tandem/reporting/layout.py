"""A table's layout: which systems are its rows, which measures its columns, and what the paper prints.

Files are config/papers/<paper>/<table>.yaml; `assets/layout.schema.json` lists their keys.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tandem.errors import UserError

System = tuple[str, str]  # (system, first stage); the first stage is empty where nothing is re-ranked


@dataclass(frozen=True)
class Column:
    """A measure by its ir_measures name, and the name the paper prints."""

    measure: str
    name: str


@dataclass(frozen=True)
class LayoutRow:
    """A system.

    Attributes:
        system: as the paper names it.
        first_stage: whose list it re-ranks; empty for a first stage.
        run: the expression that names its run: `bm25`, `<model>`, `<first stage>+<cross-encoder>`.
        printed: the paper's value in percent by measure; absent or None where it prints none.
        baseline: what it is tested against; None for a row that is nobody's challenger.
        hidden: present only as a baseline of other rows.
        labels: `corrected` scores by the qrels of the audit of false negatives; empty by the dataset's own.
        variant: `dissimilar` trains without the queries that are similar to others; empty on the dataset as it is.
    """

    system: str
    first_stage: str
    run: str
    printed: dict[str, float | None]
    baseline: System | None
    hidden: bool
    labels: str = ""
    variant: str = ""

    @property
    def id(self) -> System:
        """What tells a row from every other."""
        return self.system, self.first_stage


@dataclass(frozen=True)
class Layout:
    """A table before it has numbers; `paper` and `printed_on` are None where no paper prints it.

    Without `columns` it shows every measure of its scores. `subset` is `similar` where only the queries count that have
    a similar one among the training queries, `pooled` for those that the audit of false negatives looked at.
    """

    title: str
    paper: dict[str, str] | None
    printed_on: dict[str, str] | None
    decimals: int
    note: str
    columns: list[Column]
    rows: list[LayoutRow]
    subset: str = ""


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
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such layout; layouts are {where}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    allowed = json.loads((files("tandem.reporting") / "assets" / schema).read_text(encoding="utf-8"))
    wrong = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(allowed).iter_errors(content))
    if wrong is not None:
        place = ".".join(map(str, wrong.absolute_path)) or "the layout"
        raise UserError(f"{path}: {place}: {wrong.message}")
    return dict(content)


def load_layout(path: Path) -> Layout:
    """Read and check a layout.

    A row's baseline is its own `baseline`, else the row of its first stage, else the table's `baseline`.

    Raises:
        UserError: a missing file, a key or type that is not allowed, two rows of one system and first stage, a value
            printed for a measure without a column, or a baseline that is not a row.
    """
    content = read_layout(path, "layout.schema.json", "config/papers/<paper>/<table>.yaml")
    columns = [Column(c["measure"], c.get("name", c["measure"])) for c in content.get("columns", [])]
    return Layout(
        title=content["title"],
        paper=content.get("paper"),
        printed_on=content.get("printed_on"),
        decimals=content.get("decimals", 2),
        note=content.get("note", ""),
        columns=columns,
        rows=_rows(path, content, {column.measure for column in columns}),
        subset=content.get("subset", ""),
    )


def _rows(path: Path, content: dict[str, Any], measures: set[str]) -> list[LayoutRow]:
    """The rows with their baselines found."""
    ids = [(row["system"], row.get("first_stage", "")) for row in content["rows"]]
    rows = []
    for at, (row, own) in enumerate(zip(content["rows"], ids, strict=True)):
        if own in ids[:at]:
            raise UserError(f"{path}: rows.{at}: {name(own)} is there twice; each system and first stage once")
        for measure in row.get("printed", {}):
            if measure not in measures:
                raise UserError(f"{path}: rows.{at}.printed.{measure}: no such column; add it to columns")
        told = row.get("baseline") or content.get("baseline")
        baseline = (told["system"], told.get("first_stage", "")) if told else None
        if "baseline" not in row and (row.get("first_stage"), "") in ids:
            baseline = (row["first_stage"], "")
        if baseline is not None and baseline not in ids:
            allowed = ", ".join(map(name, ids))
            raise UserError(f"{path}: rows.{at}: baseline {name(baseline)} is not a row; the rows are {allowed}")
        baseline = None if baseline == own else baseline
        rows.append(
            LayoutRow(
                *own,
                row["run"],
                row.get("printed", {}),
                baseline,
                row.get("hidden", False),
                row.get("labels", ""),
                row.get("variant", ""),
            ),
        )
    return rows


def name(system: System) -> str:
    """`CE w/ DE Neg on BM25`, or the system alone."""
    return f"{system[0]} on {system[1]}" if system[1] else system[0]
