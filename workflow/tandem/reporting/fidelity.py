"""The command `fidelity`: does a validation on the reduced corpus order checkpoints as one on the full corpus does?"""

from tandem.reporting.flags import csv_out, read_flags
from tandem.reporting.page import render
from tandem.reporting.plain import csv_lines
from tandem.reporting.validations import Curve, read_curves
from tandem.store.files import write_text

MEASURED = ["step", "measure", "reduced", "full_measure", "full"]
HEADER = ["model", "part", "checkpoint", *MEASURED, "tau", "r", "same_choice"]


def main(words: list[str]) -> int:
    """`fidelity --rows JSON --out …/fidelity.csv`: writes fidelity.csv and .html side by side."""
    flags = read_flags(words, ("rows", "out"))
    out = csv_out(flags)
    curves = read_curves(flags["rows"])
    write_text(out, csv_text(curves))
    write_text(out.with_suffix(".html"), render("fidelity.html", curves=curves))
    return 0


def csv_text(curves: list[Curve]) -> str:
    """A line per checkpoint; what is said of all checkpoints of a model's part stands in each of its lines."""
    lines = []
    for curve in curves:
        told = ["" if number is None else f"{number:.6f}" for number in (curve.tau, curve.r)]
        for row in curve.rows:
            known = [curve.model, curve.part, row["key"], row["step"]]
            measured = [curve.measures[0], f"{row['reduced']:.6f}", curve.measures[1], f"{row['full']:.6f}"]
            lines.append([*known, *measured, *told, "yes" if curve.same else "no"])
    return csv_lines(HEADER, lines)
