"""Plans of tables as planning writes them, from a layout file and rows with the folders of their scores."""

import json
from pathlib import Path

from tandem.cli import run as run_command
from tandem.config.loading import read_bands
from tandem.evaluation.layouts import PlannedRow, TablePlan, find_beside, load_layout


def write_plan(
    out: Path, layout: Path, rows, dataset: str = "toy", split: str = "test", skipped=None
) -> Path:
    """The plan of a table, written to `out`; rows with `absent` instead of scores have none."""
    bands, place = find_beside(layout, "bands.yaml"), {"dataset": dataset, "split": split}
    plan = TablePlan(
        name=layout.stem,
        layout=load_layout(layout),
        rows=[PlannedRow.model_validate({**place, **row}) for row in rows],
        bands=read_bands(bands) if bands else [],
        skipped=skipped or {},
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(plan.model_dump_json(by_alias=True, exclude_defaults=True))
    return out


def make_table(
    folder: Path,
    layout: Path,
    rows,
    out: Path,
    dataset: str = "toy",
    split: str = "test",
    skipped=None,
) -> Path:
    """The table that the command `table` makes of a plan; `rows` may be JSON."""
    rows = json.loads(rows) if isinstance(rows, str) else rows
    plan = write_plan(folder / f"{out.stem}.plan", layout, rows, dataset, split, skipped)
    assert run_command(["table", "--plan", str(plan), "--out", str(out)]) == 0
    return out
