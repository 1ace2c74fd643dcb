"""The command `index-tradeoffs`: recall against latency and bytes per vector of the indexes that a stage measured."""

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from tandem.report.charts import Series, draw_lines, draw_points
from tandem.report.commands import CsvOut, write_views
from tandem.report.page import PageTable, render_template, write_markdown
from tandem.stages.retrieval import TermTradeoffsParams
from tandem.store.artifact import MANIFEST, Artifact, open_artifact

SWEPT = {"nprobe": "nprobe", "ef_search": "efSearch"}
TITLE = "Indexes: recall against latency and size"


def index_tradeoffs(*, stage: Path, out: CsvOut) -> None:
    """Write the measured indexes as a table and a page.

    Args:
        stage: folder of the stage that measured them.
        out: the table as CSV; the others go beside it as .md and .html.
    """
    artifact = open_artifact(stage)
    text = artifact.path("tradeoffs.csv").read_text(encoding="utf-8")
    lines = pd.read_csv(StringIO(text), dtype=dict.fromkeys(SWEPT, "Int64"))
    recalls = [name for name in map(str, lines) if name.startswith("recall@")]
    grid = tradeoffs_grid(lines, recalls, artifact)
    plots = [plot for name in recalls for plot in charts(lines, name)]
    source = os.path.relpath(artifact.folder / MANIFEST, out.parent)
    html = render_template("grid.html", title=TITLE, notes=grid.notes, grid=grid, charts=plots, source=source)
    write_views(out, {".csv": text, ".md": write_markdown(grid), ".html": html})


def setting(line: "pd.Series[Any]") -> str:
    """`nprobe 16`, with `exact scores` where passages are rescored."""
    words = [f"{name} {line[column]}" for column, name in SWEPT.items() if pd.notna(line[column])]
    return ", ".join(words + (["exact scores"] if line["rescore"] else [])) or "–"


def tradeoffs_grid(lines: pd.DataFrame, recalls: list[str], artifact: Artifact) -> PageTable:
    """A row for each setting of each index, and how it was measured."""
    active = ["active terms"] if "active_terms" in lines else []
    head = ["index", "by" if active else "FAISS", "search", *recalls, "ms a query", "queries/s together"]
    head += ["bytes a vector", *active]
    rows = [
        [
            *(line["index"], line["factory"], setting(line)),
            *(f"{line[name]:.4f}" for name in recalls),
            f"{line['ms_per_query']:.3f}",
            f"{line['queries_per_second']:,.0f}",
            f"{line['bytes_per_vector']:,.0f}",
            *(f"{line['active_terms']:,.1f}" for _ in active),
        ]
        for _, line in lines.iterrows()
    ]
    manifest, params = artifact.manifest, artifact.params_as(TermTradeoffsParams)
    queries = f"at most {params.queries:,} {params.split} queries"
    note = (
        f"{artifact.key}: recall of the exact top, on {queries}; one query at a time by one thread, all together by "
        f"{manifest.facts['threads']} threads, on {manifest.machine.cores} cores; medians of {params.repeats}. "
        "For exact scores the embeddings are read as well; their bytes are not counted."
    )
    return PageTable(TITLE, head, rows, align="lll" + "r" * (len(head) - 3), notes=[note])


def charts(lines: pd.DataFrame, recall: str) -> list[Markup]:
    """Recall against latency, a line an index, and against bytes; by the indexes' own scores and by exact ones."""
    figures = []
    for rescored, how in ((False, "by the index's own scores"), (True, "with exact scores")):
        own = lines[lines["rescore"] == rescored]
        if not own.empty:
            title = f"{recall} against latency, {how}"
            latency = _series(own, "ms_per_query", recall)
            figures.append(draw_lines(title, latency, "ms a query, one thread", recall, log=True))
            size = _series(own, "bytes_per_vector", recall)
            figures.append(draw_points(f"{recall} against size, {how}", size, "bytes a vector", recall))
    return figures


def _series(lines: pd.DataFrame, x: str, y: str) -> list[Series]:
    by_index = [(str(name), points.sort_values([x, y])) for name, points in lines.groupby("index", sort=False)]
    return [Series(name, points[x].tolist(), points[y].tolist()) for name, points in by_index]
