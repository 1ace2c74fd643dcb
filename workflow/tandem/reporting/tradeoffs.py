"""The command `index-tradeoffs`: recall against latency and bytes per vector of the indexes that a stage measured."""

import csv
import os
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from tandem.reporting.charts import Series, line_chart, scatter
from tandem.reporting.flags import csv_out, read_flags
from tandem.reporting.grid import Grid
from tandem.reporting.page import render
from tandem.reporting.plain import escape, pipe_row
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.files import write_text

Line = dict[str, str]
SWEPT = {"nprobe": "nprobe", "ef_search": "efSearch"}
TITLE = "Indexes: recall against latency and size"


def main(words: list[str]) -> int:
    """`index-tradeoffs --stage FOLDER --out …/index_tradeoffs.csv`: writes the CSV, a Markdown table and a page."""
    flags = read_flags(words, ("stage", "out"))
    out = csv_out(flags)
    artifact = open_artifact(Path(flags["stage"]), "tradeoffs")
    text = artifact.path("tradeoffs.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    head, rows = table(lines)
    note = caption(artifact)
    write_text(out, text)
    write_text(out.with_suffix(".md"), markdown(head, rows, note))
    shown = {"title": TITLE, "notes": [note], "grid": Grid(TITLE, head, rows), "charts": charts(lines)}
    source = os.path.relpath(artifact.folder / MANIFEST, out.parent)
    write_text(out.with_suffix(".html"), render("grid.html", **shown, source=source))
    return 0


def recalls(lines: list[Line]) -> list[str]:
    """The columns of recall."""
    return [name for name in lines[0] if name.startswith("recall@")]


def setting(line: Line) -> str:
    """`nprobe 16`, with `exact scores` where passages are rescored."""
    told = [f"{words} {line[name]}" for name, words in SWEPT.items() if line[name]]
    return ", ".join(told + (["exact scores"] if line["rescore"] == "True" else [])) or "–"


def table(lines: list[Line]) -> tuple[list[str], list[list[str]]]:
    """Head and rows as text."""
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
    return head, rows


def caption(artifact: Artifact) -> str:
    """What was measured, on what."""
    manifest, params = artifact.manifest, artifact.params
    asked = f"at most {params['queries']:,} {params['split']} queries"
    return (
        f"{artifact.key}: recall of the exact top, on {asked}; one query at a time by one thread, all together by "
        f"{manifest.facts['threads']} threads, on {manifest.machine.cores} cores; medians of {params['repeats']}. "
        "For exact scores the embeddings are read as well; their bytes are not counted."
    )


def markdown(head: list[str], rows: list[list[str]], note: str) -> str:
    """A pipe table."""
    lines = [f"**{TITLE}**", "", pipe_row(head), pipe_row(["---"] * 3 + ["---:"] * (len(head) - 3))]
    return "\n".join([*lines, *(pipe_row([escape(cell) for cell in row]) for row in rows), "", escape(note)]) + "\n"


def charts(lines: list[Line]) -> list[Markup]:
    """Recall against latency, a line an index, and against bytes; for each k."""
    made = []
    for name in recalls(lines):
        for exact, how in (("False", "by the index's own scores"), ("True", "with exact scores")):
            shown = [line for line in lines if line["rescore"] == exact]
            if not shown:
                continue
            latency = [_series(title, list(of), "ms_per_query", name) for title, of in groupby(shown, _index)]
            size = [_series(title, list(of), "bytes_per_vector", name) for title, of in groupby(shown, _index)]
            made.append(line_chart(f"{name} against latency, {how}", latency, "ms a query, one thread", name, log=True))
            made.append(scatter(f"{name} against size, {how}", size, "bytes a vector", name))
    return made


def _index(line: Line) -> str:
    return line["index"]


def _series(title: str, lines: list[Line], x: str, y: str) -> Series:
    """Points of an index in ascending x."""
    points = sorted((float(line[x]), float(line[y])) for line in lines)
    return Series(title, [at for at, _ in points], [value for _, value in points])
