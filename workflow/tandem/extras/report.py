"""The command `report` with the sections of all extras."""

from pathlib import Path
from typing import Annotated

from tandem.evaluation.layouts import PlannedRow
from tandem.extras.analysis.error_table import add_analyses
from tandem.extras.audits.report import add_audits
from tandem.extras.fidelity import ValidationRow, add_validations
from tandem.extras.sweep_page import add_sweeps
from tandem.report.commands import write_report
from tandem.report.flags import JSON, Files
from tandem.report.results import read_table


def report(
    *,
    tables: Files,
    rows: Annotated[list[PlannedRow], JSON],
    out: Path,
    audits: Files = (),
    validations: Annotated[tuple[ValidationRow, ...], JSON] = (),
    sweeps: Files = (),
    analyses: Files = (),
) -> None:
    """Write the report's page.

    Args:
        tables: files that `tandem table` wrote.
        rows: the systems that are compared, all scored on one dataset and split: a JSON list of rows of a table's plan.
        out: the page.
        audits: manifests of audits.
        validations: a JSON list of validated checkpoints, as for `tandem fidelity`.
        sweeps: files that `tandem sweep` wrote.
        analyses: manifests of error analyses.
    """
    additions = [add_sweeps(sweeps), add_analyses(analyses), add_audits(audits), add_validations(validations)]
    write_report([read_table(table.with_suffix(".json")) for table in tables], rows, out, additions)
