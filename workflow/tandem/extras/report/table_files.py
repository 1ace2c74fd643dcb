"""A table as a page of its own, and in LaTeX."""

import os
from collections.abc import Sequence
from pathlib import Path

from tandem.extras.report.page import render_template, write_latex
from tandem.report.grids import PageTable
from tandem.report.results import Table
from tandem.store.artifact import MANIFEST


def write_table_page(table: Table, grids: Sequence[PageTable], out: Path) -> str:
    """Return a table's page, whose links lead from the folder of `out` to the manifests of its runs."""

    def address(run: str) -> str:
        return os.path.relpath(Path(run) / MANIFEST, out.parent)

    return render_template("table.html", title=table.heading, table=table, address=address)


def write_table_latex(table: Table, grids: Sequence[PageTable], out: Path) -> str:
    """Return a table and the orders that it tests in LaTeX."""
    return "\n".join(map(write_latex, grids))
