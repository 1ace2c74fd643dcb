"""The command `table`: a paper's table from score artifacts, as CSV, Markdown, LaTeX and HTML."""

import os
from pathlib import Path

from tandem.artifact import Artifact, open_artifact, write_text
from tandem.errors import UserError
from tandem.reporting.flags import read_flags, read_rows
from tandem.reporting.latex import latex
from tandem.reporting.layout import Layout, System, load_layout, name
from tandem.reporting.page import render
from tandem.reporting.plain import csv_text, markdown
from tandem.reporting.results import Table, fill


def main(words: list[str]) -> int:
    """`table --layout FILE --rows JSON --dataset NAME --split SPLIT --out …/<table>.csv`.

    Writes <table>.csv, .md, .tex, .html and .json (the table for `show` and `report`) side by side.
    """
    flags = read_flags(words, ("layout", "rows", "dataset", "split", "out"))
    out = Path(flags["out"])
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")
    layout = load_layout(Path(flags["layout"]))
    artifacts = open_rows(read_rows(flags["rows"]))
    _check(layout, artifacts, flags["layout"], flags["split"])
    table = fill(layout, artifacts, flags["dataset"], flags["split"])
    texts = {".csv": csv_text, ".md": markdown, ".tex": latex, ".json": Table.to_json}
    for suffix, text in texts.items():
        write_text(out.with_suffix(suffix), text(table))
    sources = [os.path.relpath(Path(row.folder) / "stage.json", out.parent) for row in table.rows]
    write_text(out.with_suffix(".html"), render("table.html", table=table, sources=sources))
    return 0


def open_rows(rows: list[dict[str, str]]) -> dict[System, Artifact]:
    """The score artifact of each row, verified."""
    opened: dict[System, Artifact] = {}
    for row in rows:
        system = (row["system"], row["first_stage"])
        if system in opened:
            raise UserError(f"--rows: {name(system)} is there twice; each system and first stage once")
        opened[system] = open_artifact(Path(row["scores"]), "score")
    return opened


def _check(layout: Layout, artifacts: dict[System, Artifact], file: str, split: str) -> None:
    """The rows given must be those of the layout, and scored on the split that is claimed."""
    needed = [row.id for row in layout.rows]
    for system in needed:
        if system not in artifacts:
            raise UserError(f"--rows: {name(system)} is missing; {file} has {', '.join(map(name, needed))}")
    for system, artifact in artifacts.items():
        if system not in needed:
            raise UserError(f"--rows: {name(system)} is no row of {file}; it has {', '.join(map(name, needed))}")
        if artifact.params["split"] != split:
            told = artifact.params["split"]
            raise UserError(f"{artifact.folder}: was scored on split {told}, but --split is {split}; they must agree")
