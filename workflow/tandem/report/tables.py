"""The commands `table` and `show`: a paper's table from score artifacts, in every format, and on the terminal."""

import os
from collections.abc import Sequence
from pathlib import Path

from tandem.errors import UserError
from tandem.evaluation.layouts import TablePlan, system_name
from tandem.report.filling import fill
from tandem.report.flags import csv_out, read_flags, read_plan
from tandem.report.formats import latex_grid, markdown_grid, table_csv, text_grid
from tandem.report.grid import aligned, latex, markdown
from tandem.report.page import render
from tandem.report.results import Row, Table, read_table
from tandem.report.scored import Scored, read_scored
from tandem.store.artifact import MANIFEST
from tandem.store.files import write_text


def main(words: list[str]) -> int:
    """`table --plan FILE --out …/<table>.csv`.

    Writes <table>.csv, .md, .tex, .html and .json (the table for `show` and `report`) side by side. The plan holds the
    table's layout and bands, and for each row, dataset and seed the folder of its scores; planning writes it.
    """
    flags = read_flags(words, ("plan", "out"))
    out, plan = csv_out(flags), read_plan("plan", Path(flags["plan"]), TablePlan, "a table's plan")
    scored = read_scored([row for row in plan.rows if not row.absent])
    absent = {row.id: row.absent for row in plan.rows if row.absent}
    _check_rows(plan, scored)
    table = fill(plan.layout, scored, plan.name, plan.bands, absent)
    for suffix, text in render_table(table, out.parent).items():
        write_text(out.with_suffix(suffix), text)
    return 0


def render_table(table: Table, folder: Path) -> dict[str, str]:
    """The table in every format, by the ending of its file; links of its page start at `folder`."""

    def address(run: str) -> str:
        """A manifest's place as seen from the page."""
        return os.path.relpath(Path(run) / MANIFEST, folder)

    def anchor(row: Row) -> str:
        """A row's place on the page; two may show one run."""
        return f"row-{table.rows.index(row) + 1}"

    return {
        ".csv": table_csv(table),
        ".md": markdown(markdown_grid(table)),
        ".tex": latex(latex_grid(table)),
        ".json": table.to_json(),
        ".html": render("table.html", title=table.heading, table=table, anchor=anchor, address=address),
    }


def _check_rows(plan: TablePlan, scored: Sequence[Scored]) -> None:
    """The rows with scores must be those of the layout that are not quoted."""
    needed = [row.id for row in plan.layout.rows if not row.quoted]
    names = ", ".join(map(system_name, needed))
    present, absent = {score.system for score in scored}, {row.id for row in plan.rows if row.absent}
    for system in needed:
        if system not in present and system not in absent:
            raise UserError(f"{plan.name}: {system_name(system)} has no scores; its rows are {names}")
    for system in present:
        if system not in needed:
            raise UserError(f"{plan.name}: {system_name(system)} is not a row of the layout; its rows are {names}")


def show(table: Path, /) -> None:
    """Print a table, aligned, with every p-value.

    Args:
        table: a file results/tables/<table>.csv, written by Snakemake.
    """
    print(aligned(text_grid(read_table(table.with_suffix(".json")))))
