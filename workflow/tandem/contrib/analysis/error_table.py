"""Table 10 of DuReader-retrieval: types of wrong results, printed and own; and the report's section on them.

The own types come from an annotator's sheet. Until a sheet is filled in, they are guesses.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from pydantic import TypeAdapter

from tandem.contrib.analysis.wrong_results import (
    PAIRS,
    PAIRS_SCHEMA,
    SUMMARY,
    TYPES,
    ErrorSummary,
    read_types,
)
from tandem.data.tables import stream_rows
from tandem.errors import UserError
from tandem.evaluation.layouts import read_printed
from tandem.extras.report.charts import draw_bars
from tandem.extras.report.page import FOLDERS, cut_text, render_macro, render_template, write_latex
from tandem.extras.report.sections import Addition, PageSection, adds_to_report
from tandem.report.grids import (
    PageTable,
    format_difference,
    format_four_decimals,
    write_markdown,
)
from tandem.report.table_commands import CsvOut, write_views
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.files import csv_text
from tandem.store.lineage import BuiltStage

FOLDERS.append(Path(__file__).parent / "assets")
SOURCE, TABLE = "dureader_retrieval", "Table 10"
PRINTED_PAIRS = 500  # 100 queries with their top 5 results (§3.5)
_HEAD = ("Category", "Type", "printed %", "printed pairs", "own pairs", "own %", "Δ")
_TITLE = "Types of wrong results (DuReader-retrieval, Table 10)"
MOST, CHARACTERS = 200, 400  # pairs on the report's page, and characters of each text


class ErrorLine(NamedTuple):
    """The line of a type, of a category (`type` is empty) or of all (both are empty); shares are in percent.

    `printed_pairs` is the printed share as a number of pairs.
    """

    category: str
    type: str
    printed: float
    printed_pairs: float
    pairs: int
    share: float
    difference: float

    @property
    def cells(self) -> list[str]:
        """Return the line's cells as they are displayed."""
        name = self.type or (f"{self.category}, all" if self.category else "All")
        shares = [
            f"{self.printed:.1f}",
            f"{self.printed_pairs:g}",
            f"{self.pairs:,}",
            f"{self.share:.1f}",
        ]
        difference = format_difference(self.difference, 1)
        return [self.category if self.type else "", name, *shares, difference]


def write_error_table(
    *, errors: Path, printed: Path, out: CsvOut, sheet: Path | None = None
) -> None:
    """Write the table of error types; without a filled sheet, the types are guesses, and the table says so.

    Args:
        errors: folder of the stage that collected the wrong results.
        printed: the papers' printed numbers.
        out: the table as CSV; .md, .tex and .html files are written next to it.
        sheet: the annotators' filled sheet.
    """
    artifact = open_artifact(errors, "errors")
    summary = read_summary(artifact)
    types = read_types(sheet, artifact) if sheet else list(Counter(summary.guesses).elements())
    if not types:
        raise UserError(f"{sheet}: no row has a type yet; fill in the column `type`")
    shares = read_printed_shares(printed)
    lines = list(list_error_lines(shares, types))
    who = (
        "annotated"
        if sheet
        else "guessed from words, not annotated: no finding, only what a sheet starts from"
    )
    queries = f"{summary.without_positive:,} of {summary.queries:,} queries of {summary.split}"
    top = f"the top {summary.top} of {summary.run} ({artifact.key})"
    own = f"Own: {len(types):,} pairs, {who}. {queries} have no positive in {top}."
    notes = [check_arithmetic(shares), own]
    source = os.path.relpath(artifact.folder / MANIFEST, out.parent)
    grid = PageTable(
        _TITLE, _HEAD, [line.cells for line in lines], named_by=1, align="llrrrrr", notes=notes
    )
    html = render_template("grid.html", title=_TITLE, grid=grid, notes=notes, source=source)
    text = csv_text(
        ErrorLine._fields,
        [[*line[:5], *map(format_four_decimals, (line.share, line.difference))] for line in lines],
    )
    write_views(
        out, {".csv": text, ".md": write_markdown(grid), ".tex": write_latex(grid), ".html": html}
    )


def read_summary(errors: Artifact) -> ErrorSummary:
    """Read the counts of an error analysis."""
    return TypeAdapter(ErrorSummary).validate_json(errors.path(SUMMARY).read_bytes())


def read_printed_shares(path: Path) -> dict[str, float]:
    """Return type → printed percentage; refuse a file that does not contain each type exactly once."""
    shares: dict[str, float] = {}
    for line in read_printed(path, SOURCE, TABLE).lines:
        category, _, name = line.setting.partition(" / ")
        if TYPES.get(name) != category or name in shares:
            raise UserError(
                f"{path}: {SOURCE}, {TABLE} has {line.setting}, unknown or twice; see wrong_results.py"
            )
        shares[name] = float(line.value)
    if missing := [name for name in TYPES if name not in shares]:
        raise UserError(f"{path}: {SOURCE}, {TABLE} lacks {', '.join(missing)}")
    return {name: shares[name] for name in TYPES}


def list_error_lines(printed: dict[str, float], types: Iterable[str]) -> Iterator[ErrorLine]:
    """Yield the lines: the types of each category, their sum if there are several, and at the end the sum of all."""
    counts = Counter(types)

    def sum_up(category: str, name: str, names: list[str]) -> ErrorLine:
        """Return the line that sums up some types."""
        percent = round(sum(printed[part] for part in names), 4)
        pairs = sum(counts[part] for part in names)
        share = 100 * pairs / counts.total()
        return ErrorLine(
            category=category,
            type=name,
            printed=percent,
            printed_pairs=round(percent * PRINTED_PAIRS / 100, 4),
            pairs=pairs,
            share=share,
            difference=share - percent,
        )

    for category, group in groupby(TYPES, key=TYPES.__getitem__):
        names = list(group)
        for name in names:
            yield sum_up(category, name, [name])
        if len(names) > 1:
            yield sum_up(category, "", names)
    yield sum_up("", "", list(TYPES))


def check_arithmetic(printed: dict[str, float]) -> str:
    """Return a sentence that states the sum of the printed shares and whether they can be counts of 500 pairs."""
    total = round(sum(printed.values()), 4)
    uneven = [
        name
        for name, share in printed.items()
        if not (round(share * PRINTED_PAIRS / 100, 4)).is_integer()
    ]
    whole = (
        f"no whole number: {', '.join(uneven)}"
        if uneven
        else f"all are whole numbers of {PRINTED_PAIRS} pairs"
    )
    return f"The printed shares add up to {total:g} %; {whole}."


class ErrorSummaryView(NamedTuple):
    """An error analysis on the report's page, with a chart of the guessed types and the first rows of its sheet."""

    stage: BuiltStage
    summary: ErrorSummary
    guesses: PageTable
    chart: Markup
    rows: list[dict[str, object]]


def show_error_analysis(stage: BuiltStage) -> ErrorSummaryView:
    """Return the error analysis as the page shows it."""
    summary = read_summary(stage.artifact)
    counts = {name: {"pairs": float(count)} for name, count in summary.guesses.items()}
    chart = draw_bars("Guessed types of wrong results", counts, "pairs", ".0f")
    first = (
        dict(zip(PAIRS_SCHEMA.names, row, strict=True))
        for row in islice(stream_rows(stage.artifact.path(PAIRS)), MOST)
    )
    rows = [
        {k: cut_text(v, CHARACTERS) if isinstance(v, str) else v for k, v in row.items()}
        for row in first
    ]
    shares = [
        (name, f"{n:,}", f"{100 * n / max(summary.pairs, 1):.1f}")
        for name, n in summary.guesses.items()
    ]
    return ErrorSummaryView(
        stage, summary, PageTable("Guessed types", ["Type", "pairs", "%"], shares), chart, rows
    )


@adds_to_report("analysis")
def add_analyses(manifests: Sequence[str]) -> Addition:
    """Add the report's section of error analyses."""

    def section(stages: dict[str, BuiltStage]) -> PageSection | None:
        analyses = [
            show_error_analysis(stage) for stage in stages.values() if stage.kind == "errors"
        ]
        body = render_macro("_analyses.html", "analysed", analyses)
        return PageSection("analyses", "Errors", body, "checks") if analyses else None

    return Addition([open_artifact(Path(path), verify=False) for path in manifests], section)
