"""The command `sweep`: the numbers of a sweep as a long table and as plots."""

import json
import os
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.reporting.flags import csv_out, read_flags
from tandem.reporting.page import render
from tandem.reporting.plain import csv_lines, escape, pipe_row
from tandem.reporting.sweep_compute import compute
from tandem.reporting.sweep_page import LEGEND, shown, table
from tandem.reporting.sweep_plot import svg
from tandem.reporting.sweep_results import Result, worded
from tandem.store.artifact import MANIFEST
from tandem.store.files import write_text

MEASURED = ["runs", "value", "sd", "low", "high", "change", "p", "printed", "stage"]


def main(words: list[str]) -> int:
    """`sweep --points FILE --out …/<sweep>.csv`: writes <sweep>.csv, .md, .json, .html and .svg side by side."""
    flags = read_flags(words, ("points", "out"))
    out = csv_out(flags)
    result = compute(read_points(Path(flags["points"])))

    def address(told: dict[str, Any]) -> str:
        """A run's manifest as seen from the page."""
        return os.path.relpath(Path(told["folder"]) / MANIFEST, out.parent)

    write_text(out, csv_text(result))
    write_text(out.with_suffix(".md"), markdown(result))
    write_text(out.with_suffix(".svg"), svg(result))
    page = render("sweep.html", title=result.title, sweep=shown(result, address))
    write_text(out.with_suffix(".html"), page)
    write_text(out.with_suffix(".json"), result.to_json())
    return 0


def read_points(path: Path) -> dict[str, Any]:
    """The planned sweep; a `UserError` for a file that is none."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--points: {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError as error:
        raise UserError(f"--points: {path}: not valid JSON ({error})") from None
    if not isinstance(told, dict):
        raise UserError(f"--points: {path} is no sweep; `snakemake sweep_<name>` writes the file")
    return told


def csv_text(result: Result) -> str:
    """A line per point, system and measure: a column for each path, then what was measured."""
    lines = []
    for line in result.lines:
        known = [*(worded(line.point[path]) for path in result.paths), line.system, result.dataset, result.split]
        numbers = [_number(n) for n in (line.value, line.sd, line.low, line.high, line.change)]
        p = "" if line.p is None else f"{line.p:.6f}"
        printed = "" if line.printed is None else f"{line.printed:g}"
        lines.append([*known, line.measure, line.runs, *numbers, p, printed, " ".join(line.stages)])
    return csv_lines([*result.paths, "system", "dataset", "split", "measure", *MEASURED], lines)


def _number(value: float | None) -> str:
    """Four decimals."""
    return "" if value is None else f"{value:.4f}"


def markdown(result: Result) -> str:
    """A pipe table."""
    head, rows = table(result)
    words = len(result.paths) + 1
    lines = [
        f"**{escape(result.title)}** · {escape(result.caption)}",
        "",
        pipe_row([escape(word) for word in head]),
        pipe_row(["---"] * words + ["---:"] * (len(head) - words)),
        *(pipe_row([escape(word) for word in row]) for row in rows),
        "",
        escape(LEGEND),
    ]
    return "\n".join([*lines, *(["", escape(result.note.strip())] if result.note.strip() else [])]) + "\n"
