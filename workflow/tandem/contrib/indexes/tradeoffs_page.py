"""The command `index-tradeoffs`: recall against latency and bytes per vector of the indexes that a stage measured."""

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from tandem.extras.report.charts import Series, draw_lines, draw_points
from tandem.extras.report.page import render_template
from tandem.extras.tradeoffs_options import TradeoffsParams
from tandem.report.grids import PageTable, write_markdown
from tandem.report.table_commands import CsvOut, write_views
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, Artifact, open_artifact

SWEPT = {"nprobe": "nprobe", "ef_search": "efSearch"}
_TITLE = "Indexes: recall against latency and size"


def index_tradeoffs(*, stage: Path, out: CsvOut) -> None:
    """Write the measured indexes as a table and a page.

    Args:
        stage: folder of the stage that measured them.
        out: the table as CSV; the table as .md and the page as .html are written next to it.
    """
    artifact = open_artifact(stage)
    text = artifact.path("tradeoffs.csv").read_text(encoding="utf-8")
    lines = pd.read_csv(StringIO(text), dtype=dict.fromkeys(SWEPT, "Int64"))
    recalls = [name for name in map(str, lines) if name.startswith("recall@")]
    grid = tabulate_tradeoffs(lines, recalls, artifact)
    plots = [plot for name in recalls for plot in draw_tradeoffs(lines, name)]
    source = os.path.relpath(artifact.folder / MANIFEST, out.parent)
    html = render_template(
        "grid.html", title=_TITLE, notes=grid.notes, grid=grid, charts=plots, source=source
    )
    write_views(out, {".csv": text, ".md": write_markdown(grid), ".html": html})


def format_setting(line: "pd.Series[Any]") -> str:
    """Return `nprobe 16`, with `exact scores` if passages are rescored."""
    words = [f"{name} {line[column]}" for column, name in SWEPT.items() if pd.notna(line[column])]
    if line["rescore"]:
        words.append("exact scores")
    return ", ".join(words) or "–"


def tabulate_tradeoffs(lines: pd.DataFrame, recalls: list[str], artifact: Artifact) -> PageTable:
    """Return a row per setting of each index, and how it was measured."""
    has_terms = "active_terms" in lines
    head = [
        "index",
        "by" if has_terms else "FAISS",
        "search",
        *recalls,
        "ms a query",
        "queries/s together",
    ]
    head.append("bytes a vector")
    if has_terms:
        head.append("active terms")

    rows = []
    for _, line in lines.iterrows():
        row = [line["index"], line["factory"], format_setting(line)]
        row += [f"{line[name]:.4f}" for name in recalls]
        row.append(f"{line['ms_per_query']:.3f}")
        row.append(f"{line['queries_per_second']:,.0f}")
        row.append(f"{line['bytes_per_vector']:,.0f}")
        if has_terms:
            row.append(f"{line['active_terms']:,.1f}")
        rows.append(row)

    model = KINDS[artifact.kind].params
    assert model is not None
    assert issubclass(model, TradeoffsParams)
    manifest, params = artifact.manifest, artifact.params_as(model)
    queries = f"at most {params.queries:,} {params.split} queries"
    note = (
        f"{artifact.key}: recall of the exact top, on {queries}; one query at a time by one thread, all together by "
        f"{manifest.facts['threads']} threads, on {manifest.machine.cores} cores; medians of {params.repeats}. "
        "For exact scores the embeddings are read as well; their bytes are not counted."
    )
    return PageTable(_TITLE, head, rows, align="lll" + "r" * (len(head) - 3), notes=[note])


def draw_tradeoffs(lines: pd.DataFrame, recall: str) -> list[Markup]:
    """Draw recall against latency, a line per index, and against bytes; for indexes' own and for exact scores."""
    figures = []
    for rescored, how in ((False, "by the index's own scores"), (True, "with exact scores")):
        own = lines[lines["rescore"] == rescored]
        if not own.empty:
            title = f"{recall} against latency, {how}"
            latency = _collect_series(own, "ms_per_query", recall)
            figures.append(draw_lines(title, latency, "ms a query, one thread", recall, log=True))
            size = _collect_series(own, "bytes_per_vector", recall)
            figures.append(
                draw_points(f"{recall} against size, {how}", size, "bytes a vector", recall)
            )
    return figures


def _collect_series(lines: pd.DataFrame, x: str, y: str) -> list[Series]:
    series = []
    for name, points in lines.groupby("index", sort=False):
        ordered = points.sort_values([x, y])
        series.append(Series(str(name), ordered[x].tolist(), ordered[y].tolist()))
    return series
