"""The command `error-table`: DuReader-retrieval's Table 10, printed and own shares of wrong results by type."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from tandem.errors import UserError
from tandem.evaluation.layouts import read_printed
from tandem.extras.analysis.errors import SUMMARY, TYPES, Summary, read_types
from tandem.report.flags import csv_out, read_flags
from tandem.report.grid import Grid, latex, markdown
from tandem.report.grid import csv_text as write_csv
from tandem.report.page import render
from tandem.store.artifact import Artifact, open_artifact
from tandem.store.files import write_text

SOURCE, TABLE = "dureader_retrieval", "Table 10"
PRINTED_PAIRS = 500  # 100 queries with their top 5 (§3.5)
HEADER = ("category", "type", "printed", "printed_pairs", "pairs", "share", "difference")
HEAD = ("Category", "Type", "printed %", "printed pairs", "own pairs", "own %", "Δ")
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

    @property
    def cells(self) -> list[str]:
        """The line for a person."""
        name = self.type or (f"{self.category}, all" if self.category else "All")
        numbers = [_number(self.printed), f"{self.printed_pairs:g}", f"{self.pairs:,}", _number(self.share)]
        return [self.category if self.type else "", name, *numbers, _number(self.difference, "+")]


def main(words: list[str]) -> int:
    """`error-table --errors FOLDER --printed printed.csv --out …/table10.csv [--sheet FILLED]`.

    Writes .csv, .md, .tex and .html. Without a filled sheet the types are the guesses, and the table says so.
    """
    flags = read_flags(words, ("errors", "printed", "out"), ("sheet",))
    errors, out = open_artifact(Path(flags["errors"]), "errors"), csv_out(flags)
    summary = Summary(**json.loads(errors.path(SUMMARY).read_text(encoding="utf-8")))
    guessed = list(Counter(summary.guesses).elements())
    types = read_types(Path(flags["sheet"]), errors) if "sheet" in flags else guessed
    if not types:
        raise UserError(f"{flags['sheet']}: no row has a type yet; fill in the column `type`")
    printed = printed_shares(Path(flags["printed"]))
    lines = table(printed, types)
    notes = [arithmetic(printed), _caption(errors, summary, types, annotated="sheet" in flags)]
    write_text(out, csv_text(lines))
    source = os.path.relpath(errors.folder / "stage.json", out.parent)
    grid = Grid(TITLE, HEAD, [line.cells for line in lines], named_by=1, align="llrrrrr", notes=notes)
    write_text(out.with_suffix(".md"), markdown(grid))
    write_text(out.with_suffix(".tex"), latex(grid))
    write_text(out.with_suffix(".html"), render("grid.html", title=TITLE, grid=grid, notes=notes, source=source))
    return 0


def printed_shares(path: Path) -> dict[str, float]:
    """Type → printed percentage; a `UserError` unless the file has each type once."""
    shares: dict[str, float] = {}
    for line in read_printed(path, SOURCE, TABLE).lines:
        category, _, name = line.setting.partition(" / ")
        if TYPES.get(name) != category or name in shares:
            raise UserError(f"{path}: {SOURCE}, {TABLE} has {line.setting}, unknown or twice; see analysis/errors.py")
        shares[name] = float(line.value)
    if missing := [name for name in TYPES if name not in shares]:
        raise UserError(f"{path}: {SOURCE}, {TABLE} lacks {', '.join(missing)}")
    return {name: shares[name] for name in TYPES}


def table(printed: dict[str, float], types: Iterable[str]) -> list[Line]:
    """The lines: each category's types, after several of them their sum, and the sum of all."""
    counts = Counter(types)
    lines: list[Line] = []
    for category in dict.fromkeys(TYPES.values()):
        names = [name for name in TYPES if TYPES[name] == category]
        lines += [_line(category, name, [name], printed, counts) for name in names]
        lines += [_line(category, "", names, printed, counts)] if len(names) > 1 else []
    return [*lines, _line("", "", list(TYPES), printed, counts)]


def _line(category: str, name: str, types: list[str], printed: dict[str, float], counts: Counter[str]) -> Line:
    percent, pairs = round(sum(printed[part] for part in types), 4), sum(counts[part] for part in types)
    share = 100 * pairs / counts.total() if counts.total() else None
    difference = None if share is None else share - percent
    return Line(category, name, percent, round(percent * PRINTED_PAIRS / 100, 4), pairs, share, difference)


def arithmetic(printed: dict[str, float]) -> str:
    """Whether the printed shares can be counts of 500 pairs, and add up."""
    total = round(sum(printed.values()), 4)
    uneven = [name for name, share in printed.items() if not (round(share * PRINTED_PAIRS / 100, 4)).is_integer()]
    whole = f"no whole number: {', '.join(uneven)}" if uneven else f"all are whole numbers of {PRINTED_PAIRS} pairs"
    return f"The printed shares add up to {total:g} %; {whole}."


def _caption(errors: Artifact, summary: Summary, types: list[str], annotated: bool) -> str:
    who = "annotated" if annotated else "guessed from words, not annotated: no finding, only what a sheet starts from"
    queries = f"{summary.without_positive:,} of {summary.queries:,} queries of {summary.split}"
    top = f"the top {summary.top} of {summary.run} ({errors.key})"
    return f"Own: {len(types):,} pairs, {who}. {queries} have no positive in {top}."


def csv_text(lines: list[Line]) -> str:
    """The table as CSV; shares in percent with four decimals."""
    numbers = [("" if n is None else f"{n:.4f}" for n in (line.share, line.difference)) for line in lines]
    return write_csv(HEADER, [[*astuple(line)[:5], *own] for line, own in zip(lines, numbers, strict=True)])


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.1f}"


HEAD = ("Category", "Type", "printed %", "printed pairs", "own pairs", "own %", "Δ")
