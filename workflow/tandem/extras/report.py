"""The command `report`: the page with the sections of all extras, or two configurations' tables beside each other."""

from pathlib import Path
from typing import Annotated

from tandem.evaluation.layouts import PlannedRow
from tandem.extras.analysis.error_table import add_analyses
from tandem.extras.audits.report import add_audits
from tandem.extras.compare import compare as compare_configurations
from tandem.extras.fidelity import ValidationRow, add_validations
from tandem.extras.sweep_page import add_sweeps
from tandem.report.commands import write_report
from tandem.report.flags import JSON, Files
from tandem.report.grid import aligned
from tandem.report.results import read_table


def report(
    *,
    compare: tuple[str, str] | None = None,
    tables: Files = (),
    rows: Annotated[tuple[PlannedRow, ...], JSON] = (),
    out: Path = Path("results/report.html"),
    audits: Files = (),
    validations: Annotated[tuple[ValidationRow, ...], JSON] = (),
    sweeps: Files = (),
    analyses: Files = (),
) -> None:
    """Write the report's page, as the rule `report` does; or compare two configurations.

    Args:
        compare: print the tables of two configurations beside each other instead: `--compare config mine`.
        tables: files that `tandem table` wrote.
        rows: the systems that are compared, all scored on one dataset and split: a JSON list of rows of a table's plan.
        out: the page.
        audits: manifests of audits.
        validations: a JSON list of validated checkpoints, as for `tandem fidelity`.
        sweeps: files that `tandem sweep` wrote.
        analyses: manifests of error analyses.
    """
    if compare:
        print("\n\n".join(map(aligned, compare_configurations(*compare))))
        return
    additions = [add_sweeps(sweeps), add_analyses(analyses), add_audits(audits), add_validations(validations)]
    write_report([read_table(table.with_suffix(".json")) for table in tables], rows, out, additions)
