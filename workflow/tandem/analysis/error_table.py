"""The command `error-table`: DuReader-retrieval's Table 10, printed and own shares of wrong results by type."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from tandem.analysis.error_sheet import read_types
from tandem.analysis.types import TYPES
from tandem.errors import UserError
from tandem.reporting import latex
from tandem.reporting.flags import csv_out, read_flags
from tandem.reporting.grid import Grid
from tandem.reporting.page import render
from tandem.reporting.plain import csv_lines, escape, pipe_row
from tandem.reporting.printed_numbers import read_numbers
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text

SOURCE, TABLE = "dureader_retrieval", "Table 10"
PRINTED_PAIRS = 500  # 100 queries with their top 5 (§3.5)
HEADER = ("category", "type", "printed", "printed_pairs", "pairs", "share", "difference")
TITLE = "Types of wrong results (DuReader-retrieval, Table 10)"


@dataclass(frozen=True)
class Line:
    """A type, or the sum of a category (an empty type) or of all (both empty); shares in percent.

    `printed_pairs` is what the printed share means in pairs; `share` and `difference` are None without any pair.
    """

    category: str
    type: str
    printed: float
    printed_pairs: float
    pairs: int
    share: float | None
    difference: float | None


def main(words: list[str]) -> int:
    """`error-table --errors FOLDER --printed printed.csv --out …/table10.csv [--sheet FILLED]`.

    Writes .csv, .md, .tex and .html. Without a filled sheet the types are the guesses, and the table says so.
    """
    flags = read_flags(words, ("errors", "printed", "out"), ("sheet",))
    errors, out = open_artifact(Path(flags["errors"]), "errors"), csv_out(flags)
    told = json.loads(errors.path("summary.json").read_text(encoding="utf-8"))
    types = read_types(Path(flags["sheet"]), errors) if "sheet" in flags else list(_guessed(told["guesses"]))
    if not types:
        raise UserError(f"{flags['sheet']}: no row has a type yet; fill in the column `type`")
    printed = printed_shares(Path(flags["printed"]))
    lines, notes = table(printed, types), [arithmetic(printed), _caption(errors, told, types, "sheet" in flags)]
    write_text(out, csv_text(lines))
    write_text(out.with_suffix(".md"), markdown(lines, notes))
    write_text(out.with_suffix(".tex"), latex_text(lines, notes))
    source = os.path.relpath(errors.folder / "stage.json", out.parent)
    grid = Grid(TITLE, HEAD, [_cells(line) for line in lines], named_by=1)
    write_text(out.with_suffix(".html"), render("grid.html", title=TITLE, grid=grid, notes=notes, source=source))
    return 0


def printed_shares(path: Path) -> dict[str, float]:
    """Type → printed percentage; a `UserError` unless the file has each type once."""
    found: dict[str, float] = {}
    for line in read_numbers(path, SOURCE, TABLE).lines:
        category, _, name = line["setting"].partition(" / ")
        if TYPES.get(name) != category or name in found:
            raise UserError(f"{path}: {SOURCE}, {TABLE} has {line['setting']}, unknown or twice; see analysis/types.py")
        found[name] = float(line["value"])
    if missing := [name for name in TYPES if name not in found]:
        raise UserError(f"{path}: {SOURCE}, {TABLE} lacks {', '.join(missing)}")
    return {name: found[name] for name in TYPES}


def table(printed: dict[str, float], types: Iterable[str]) -> list[Line]:
    """The lines: each category's types, after several of them their sum, and the sum of all."""
    counts = Counter(types)
    lines: list[Line] = []
    for category in dict.fromkeys(TYPES.values()):
        names = [name for name in TYPES if TYPES[name] == category]
        lines += [_line(category, name, [name], printed, counts) for name in names]
        lines += [_line(category, "", names, printed, counts)] if len(names) > 1 else []
    return [*lines, _line("", "", list(TYPES), printed, counts)]


def _line(category: str, name: str, of: list[str], printed: dict[str, float], counts: Counter[str]) -> Line:
    """One line: the sums over some types."""
    told, pairs = round(sum(printed[one] for one in of), 4), sum(counts[one] for one in of)
    share = 100 * pairs / counts.total() if counts.total() else None
    difference = None if share is None else share - told
    return Line(category, name, told, round(told * PRINTED_PAIRS / 100, 4), pairs, share, difference)


def arithmetic(printed: dict[str, float]) -> str:
    """Whether the printed shares can be counts of 500 pairs, and add up."""
    total = round(sum(printed.values()), 4)
    uneven = [name for name, share in printed.items() if not (round(share * PRINTED_PAIRS / 100, 4)).is_integer()]
    counts = (
        f"all are whole numbers of {PRINTED_PAIRS} pairs" if not uneven else f"no whole number: {', '.join(uneven)}"
    )
    return f"The printed shares add up to {total:g} %; {counts}."


def _caption(errors: Artifact, told: dict[str, object], types: list[str], annotated: bool) -> str:
    """Whose types are counted, and of what."""
    who = "annotated" if annotated else "guessed from words, not annotated: no finding, only what a sheet starts from"
    wrong = (
        f"{told['without_positive']:,} of {told['queries']:,} queries of {told['split']} have no positive in the top"
    )
    return f"Own: {len(types):,} pairs, {who}. {wrong} {told['top']} of {told['run']} ({errors.key})."


def _guessed(counts: dict[str, int]) -> Iterable[str]:
    """Each guess as often as it was made."""
    return Counter(counts).elements()


def csv_text(lines: list[Line]) -> str:
    """The table as CSV; shares in percent with four decimals."""
    rows = []
    for line in lines:
        *known, share, difference = astuple(line)
        rows.append([*known, *("" if one is None else f"{one:.4f}" for one in (share, difference))])
    return csv_lines(HEADER, rows)


def _cells(line: Line) -> list[str]:
    """A line in words."""
    name = line.type or (f"{line.category}, all" if line.category else "All")
    numbers = [_number(line.printed), f"{line.printed_pairs:g}", f"{line.pairs:,}", _number(line.share)]
    return [line.category if line.type else "", name, *numbers, _number(line.difference, "+")]


def _number(value: float | None, sign: str = "") -> str:
    """A percentage with one decimal, `–` where there is none."""
    return "–" if value is None else f"{value:{sign}.1f}"


HEAD = ("Category", "Type", "printed %", "printed pairs", "own pairs", "own %", "Δ")


def markdown(lines: list[Line], notes: list[str]) -> str:
    """The table as a pipe table."""
    rows = [pipe_row([escape(cell) for cell in _cells(line)]) for line in lines]
    head = [f"**{TITLE}**", "", pipe_row(list(HEAD)), pipe_row(["---"] * 2 + ["---:"] * 5)]
    return "\n".join([*head, *rows, "", *(f"{escape(note)}\n" for note in notes)]).rstrip("\n") + "\n"


def latex_text(lines: list[Line], notes: list[str]) -> str:
    """The table in LaTeX; needs the package booktabs."""
    rows = [" & ".join(latex.escape(cell) for cell in _cells(line)) + r" \\" for line in lines]
    caption = latex.escape(" ".join([f"{TITLE}.", *notes]))
    head = " & ".join(latex.escape(word) for word in HEAD)
    opened = [r"% needs \usepackage{booktabs}", r"\begin{table*}", r"\centering\small", rf"\caption{{{caption}}}"]
    ruled = [r"\begin{tabular}{llrrrrr}", r"\toprule", rf"{head} \\", r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*opened, *ruled, r"\end{tabular}", r"\end{table*}"]) + "\n"
