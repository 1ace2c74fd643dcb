"""The command `table`: a paper's table from score artifacts, as CSV, Markdown, LaTeX and HTML."""

import os
import re
from pathlib import Path

from tandem.errors import UserError
from tandem.reporting import wording
from tandem.reporting.bands import Bands, read_bands
from tandem.reporting.filling import fill
from tandem.reporting.flags import csv_out, read_flags, read_json
from tandem.reporting.generation import open_scores
from tandem.reporting.latex import latex
from tandem.reporting.layout import Layout, System, beside, name
from tandem.reporting.layouts import load_layout
from tandem.reporting.page import render
from tandem.reporting.plain import csv_text, markdown
from tandem.reporting.results import Row, Table
from tandem.reporting.seeds import Scored
from tandem.store.artifact import Artifact
from tandem.store.files import write_text

NEEDED = ("system", "first_stage")
MORE = ("dataset", "collection", "split", "column", "seed", "run", "instead")


def main(words: list[str]) -> int:
    """`table --layout FILE --rows JSON --out …/<table>.csv [--dataset NAME] [--split SPLIT]`.

    Writes <table>.csv, .md, .tex, .html and .json (the table for `show` and `report`) side by side. Each row names
    system, first_stage and scores; `dataset` and `split`, which the two flags say for rows that do not; and where a
    table has several: the layout's `column`, the `seed`. A row's `run` is the key that its scores must be of.
    """
    flags = read_flags(words, ("layout", "rows", "out"), ("dataset", "split"))
    file, out = Path(flags["layout"]), csv_out(flags)
    layout = load_layout(file)
    rows, absent = read_rows(flags["rows"])
    scored = read_scored(rows, flags.get("dataset", ""), flags.get("split", ""))
    _check(layout, scored, absent, flags["layout"])
    shared = beside(file, "bands.yaml")
    bands = Bands(read_bands(shared) if shared else [], _table_name(file, shared))
    table = fill(layout, scored, bands, absent)
    texts = {".csv": csv_text, ".md": markdown, ".tex": latex, ".json": Table.to_json}
    for suffix, text in texts.items():
        write_text(out.with_suffix(suffix), text(table))

    def address(folder: str) -> str:
        """A manifest's place as seen from the page."""
        return os.path.relpath(Path(folder) / "stage.json", out.parent)

    def anchor(row: Row) -> str:
        """A row's place on the page; two may show one run."""
        return f"row-{table.rows.index(row) + 1}"

    shown = {"title": wording.heading(table), "table": table, "anchor": anchor, "address": address}
    write_text(out.with_suffix(".html"), render("table.html", **shown))
    return 0


def _table_name(layout: Path, bands: Path | None) -> str:
    """`rocketqav2/table4` for a layout in a folder beside bands.yaml, else its file's name."""
    within = bands is not None and layout.parent != bands.parent
    return f"{layout.parent.name}/{layout.stem}" if within else layout.stem


def read_rows(text: str) -> tuple[list[dict[str, str]], dict[System, str]]:
    """`--rows`: the rows with scores, and why others have none where they are wanted.

    Raises:
        UserError: no list of such rows.
    """
    rows = read_json("rows", text)
    if not isinstance(rows, list) or not rows or any(not _fits(row) for row in rows):
        raise UserError(
            '--rows: is not a JSON list, not empty, of {"system": …, "first_stage": …, "scores": "<folder>"}; each may'
            f" also have {', '.join(MORE)}, or instead of scores say why it is absent"
        )
    absent = {(row["system"], row["first_stage"] or ""): row["absent"] for row in rows if "absent" in row}
    return [row for row in rows if "scores" in row], absent


def read_scored(rows: list[dict[str, str]], dataset: str, split: str) -> list[Scored]:
    """The score artifacts of rows, verified; dataset and split where a row says none.

    Raises:
        UserError: a score that is there twice, or one of another generation than the one planned.
    """
    found: list[Scored] = []
    for row in rows:
        artifact = open_scores(row["scores"], row.get("run") or "")
        on, at = row.get("dataset") or dataset, row.get("split") or split
        if at and artifact.params["split"] != at:
            told = artifact.params["split"]
            raise UserError(f"{artifact.folder}: was scored on split {told}, but --split is {at}; they must agree")
        system, seed = (row["system"], row["first_stage"] or ""), int(row.get("seed") or 0)
        at = artifact.params["split"]
        known = row.get("collection") or on
        one = Scored(system, row.get("column", ""), on, known, at, seed, row.get("instead", ""), artifact)
        if any((one.system, one.column, one.seed) == (o.system, o.column, o.seed) for o in found):
            raise UserError(f"--rows: {name(system)} is there twice; each system and first stage once")
        found.append(one)
    return found


def _fits(row: object) -> bool:
    """Whether a row has what it needs and nothing that is unknown: texts, the seed a number."""
    if not isinstance(row, dict) or any(not isinstance(told, str | None) for told in row.values()):
        return False
    if not re.fullmatch(r"-?\d+", row.get("seed") or "0"):
        return False
    needed = (*NEEDED, "absent") if "absent" in row else (*NEEDED, "scores")
    return set(needed) <= set(row) <= {*needed, *MORE}


def open_rows(rows: list[dict[str, str]]) -> dict[System, Artifact]:
    """The score artifact of each row, verified."""
    opened: dict[System, Artifact] = {}
    for row in rows:
        system = (row["system"], row["first_stage"])
        if system in opened:
            raise UserError(f"--rows: {name(system)} is there twice; each system and first stage once")
        opened[system] = open_scores(row["scores"])
    return opened


def _check(layout: Layout, scored: list[Scored], absent: dict[System, str], file: str) -> None:
    """The rows given must be those of the layout that are not quoted."""
    needed = [row.id for row in layout.rows if not row.quoted]
    given = {one.system for one in scored}
    for system in needed:
        if system not in given and system not in absent:
            raise UserError(f"--rows: {name(system)} is missing; {file} has {', '.join(map(name, needed))}")
    for one in scored:
        if one.system not in needed:
            raise UserError(f"--rows: {name(one.system)} is no row of {file}; it has {', '.join(map(name, needed))}")
