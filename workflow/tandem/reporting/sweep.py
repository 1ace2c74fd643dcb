"""The command `sweep`: the numbers of a sweep as a long table and as plots."""

import csv
import io
import json
import os
from pathlib import Path

from tandem.artifact import write_text
from tandem.errors import UserError
from tandem.reporting import wording
from tandem.reporting.flags import read_flags
from tandem.reporting.page import render
from tandem.reporting.plain import escape, pipe_row
from tandem.reporting.sweep_plot import figures, said, svg
from tandem.reporting.sweep_results import Line, Result, compute, short, worded

MEASURED = ["runs", "value", "sd", "low", "high", "change", "p", "printed", "stage"]
LEGEND = (
    "Values in percent, ± their standard deviation over seeds; in brackets the 95 % bootstrap interval over queries. "
    "p: paired two-sided randomisation test of the queries' means over seeds against the same system at the baseline "
    "point, Holm-corrected over the sweep's comparisons per measure; † p < 0.05, ‡ p < 0.01, better or worse."
)


def main(words: list[str]) -> int:
    """`sweep --points FILE --out …/<sweep>.csv`: writes <sweep>.csv, .md, .json, .html and .svg side by side."""
    flags = read_flags(words, ("points", "out"))
    out = Path(flags["out"])
    if out.suffix != ".csv":
        raise UserError(f"--out: is {out}; it must end in .csv, the other formats go beside it")
    result = compute(read_points(Path(flags["points"])))
    head, rows = table(result)
    write_text(out, csv_text(result))
    write_text(out.with_suffix(".md"), markdown(result, head, rows))
    write_text(out.with_suffix(".svg"), svg(result))
    stages = list(dict.fromkeys(stage for line in result.lines for stage in line.stages))
    shown = {
        "result": result,
        "charts": figures(result),
        "head": head,
        "rows": rows,
        "legend": LEGEND,
        "stages": stages,
    }
    write_text(out.with_suffix(".html"), render("sweep.html", **shown))
    write_text(out.with_suffix(".json"), result.to_json())
    return 0


def read_points(path: Path) -> dict[str, object]:
    """The planned sweep; a `UserError` for a file that is none."""
    try:
        told: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--points: {path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError as error:
        raise UserError(f"--points: {path}: not valid JSON ({error})") from None
    return told


def csv_text(result: Result) -> str:
    """A line per point, system and measure: a column for each path, then what was measured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*result.paths, "system", "dataset", "split", "measure", *MEASURED])
    for line in result.lines:
        known = [*(worded(line.point[path]) for path in result.paths), line.system, result.dataset, result.split]
        numbers = [_number(n) for n in (line.value, line.sd, line.low, line.high, line.change)]
        p = "" if line.p is None else f"{line.p:.6f}"
        printed = "" if line.printed is None else f"{line.printed:g}"
        writer.writerow([*known, line.measure, line.runs, *numbers, p, printed, " ".join(line.stages)])
    return file.getvalue()


def _number(value: float | None) -> str:
    """Four decimals."""
    return "" if value is None else f"{value:.4f}"


def table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Head and rows as text: the paths' values, the system, and per measure its value and p."""
    printed = {m: any(line.printed is not None for line in result.lines if line.measure == m) for m in result.measures}
    head = [*map(short, result.paths), "system"]
    for measure in result.measures:
        head += [f"{measure} printed", "ours", "p"] if printed[measure] else [measure, "p"]
    rows = []
    # Lines of a point and system stand together, in the order of the measures.
    for start in range(0, len(result.lines), len(result.measures)):
        lines = result.lines[start : start + len(result.measures)]
        row = [*(worded(lines[0].point[path]) for path in result.paths), lines[0].system]
        for line in lines:
            row += [wording.number(line.printed, 1)] if printed[line.measure] else []
            row += [f"{_value(line)}", wording.probability(line.p)]
        rows.append(row)
    return head, rows


def _value(line: Line) -> str:
    """`41.27 ± 0.30† [38.10, 44.20]`."""
    return f"{said(line)}{wording.mark(line.p)} [{wording.number(line.low)}, {wording.number(line.high)}]"


def markdown(result: Result, head: list[str], rows: list[list[str]]) -> str:
    """A pipe table."""
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
