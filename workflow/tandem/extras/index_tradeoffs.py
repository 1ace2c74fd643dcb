"""The command `index-tradeoffs`: recall against latency and bytes per vector of the indexes that a stage measured."""

import csv
import os
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from tandem.report.charts import Series, line_chart, scatter
from tandem.report.flags import csv_out, read_flags
from tandem.report.grid import Grid, markdown
from tandem.report.page import render
from tandem.stages.retrieval import TradeoffsParams
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.files import write_text

Line = dict[str, str]  # of tradeoffs.csv
SWEPT = {"nprobe": "nprobe", "ef_search": "efSearch"}
TITLE = "Indexes: recall against latency and size"


def main(words: list[str]) -> int:
    """`index-tradeoffs --stage FOLDER --out …/index_tradeoffs.csv`: writes the CSV, a Markdown table and a page."""
    flags = read_flags(words, ("stage", "out"))
    out = csv_out(flags)
    artifact = open_artifact(Path(flags["stage"]), "tradeoffs")
    text = artifact.path("tradeoffs.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    grid = tradeoffs_grid(lines, artifact)
    source = os.path.relpath(artifact.folder / MANIFEST, out.parent)
    html = render("grid.html", title=TITLE, notes=grid.notes, grid=grid, charts=charts(lines), source=source)
    write_text(out, text)
    write_text(out.with_suffix(".md"), markdown(grid))
    write_text(out.with_suffix(".html"), html)
    return 0


def recalls(lines: list[Line]) -> list[str]:
    """The columns of recall."""
    return [name for name in lines[0] if name.startswith("recall@")]


def setting(line: Line) -> str:
    """`nprobe 16`, with `exact scores` where passages are rescored."""
    words = [f"{name} {line[column]}" for column, name in SWEPT.items() if line[column]]
    return ", ".join(words + (["exact scores"] if line["rescore"] == "True" else [])) or "–"


def tradeoffs_grid(lines: list[Line], artifact: Artifact) -> Grid:
    """A row for each setting of each index, and how it was measured."""
    head = ["index", "FAISS", "search", *recalls(lines), "ms a query", "queries/s together", "bytes a vector"]
    rows = [
        [
            *(line["index"], line["factory"], setting(line)),
            *(f"{float(line[name]):.4f}" for name in recalls(lines)),
            f"{float(line['ms_per_query']):.3f}",
            f"{float(line['queries_per_second']):,.0f}",
            f"{float(line['bytes_per_vector']):,.0f}",
        ]
        for line in lines
    ]
    manifest, params = artifact.manifest, artifact.params_as(TradeoffsParams)
    queries = f"at most {params.queries:,} {params.split} queries"
    note = (
        f"{artifact.key}: recall of the exact top, on {queries}; one query at a time by one thread, all together by "
        f"{manifest.facts['threads']} threads, on {manifest.machine.cores} cores; medians of {params.repeats}. "
        "For exact scores the embeddings are read as well; their bytes are not counted."
    )
    return Grid(TITLE, head, rows, align="lll" + "r" * (len(head) - 3), notes=[note])


def charts(lines: list[Line]) -> list[Markup]:
    """Recall against latency, a line an index, and against bytes; for each k."""
    figures = []
    for name in recalls(lines):
        for exact, how in (("False", "by the index's own scores"), ("True", "with exact scores")):
            own = [line for line in lines if line["rescore"] == exact]
            if not own:
                continue
            by_index = [(index, list(group)) for index, group in groupby(own, lambda line: line["index"])]
            latency = [_series(index, group, "ms_per_query", name) for index, group in by_index]
            size = [_series(index, group, "bytes_per_vector", name) for index, group in by_index]
            title = f"{name} against latency, {how}"
            figures.append(line_chart(title, latency, "ms a query, one thread", name, log=True))
            figures.append(scatter(f"{name} against size, {how}", size, "bytes a vector", name))
    return figures


def _series(title: str, lines: list[Line], x: str, y: str) -> Series:
    points = sorted((float(line[x]), float(line[y])) for line in lines)
    return Series(title, [at for at, _ in points], [value for _, value in points])
