"""The report's section on wrong results: how many queries fail, the guessed types, and the first rows of the sheet."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
from markupsafe import Markup
from pydantic import TypeAdapter

from tandem.extras.analysis.errors import Summary
from tandem.report import page
from tandem.report.charts import bars
from tandem.report.compare import shortened
from tandem.report.flags import parse_json
from tandem.report.sections import Addition, Extra, Section
from tandem.store.artifact import open_artifact
from tandem.store.lineage import Stage

page.FOLDERS.append(Path(__file__).parent / "assets")
MOST, CHARACTERS = 200, 400  # pairs of a sheet on the page, and of each text


@dataclass(frozen=True)
class ErrorAnalysis:
    """An error analysis, with a chart of the guessed types and the first rows of its sheet."""

    stage: Stage
    summary: Summary
    chart: Markup
    rows: list[dict[str, object]]


def error_analyses(stages: Iterable[Stage]) -> list[ErrorAnalysis]:
    """The error analyses among some stages."""
    analyses = []
    for stage in stages:
        if stage.kind == "errors":
            summary = TypeAdapter(Summary).validate_json(stage.artifact.path("summary.json").read_bytes())
            words = {name: str(count) for name, count in summary.guesses.items()}
            guesses = {name: float(count) for name, count in summary.guesses.items()}
            chart = bars("Guessed types of wrong results", guesses, "pairs", words)
            analyses.append(ErrorAnalysis(stage, summary, chart, _rows(stage)))
    return analyses


def _rows(stage: Stage) -> list[dict[str, object]]:
    with pq.ParquetFile(stage.artifact.path("pairs.parquet")) as file:
        rows = (row for batch in file.iter_batches(batch_size=MOST) for row in batch.to_pylist())
        return [
            {name: shortened(value, CHARACTERS) if isinstance(value, str) else value for name, value in row.items()}
            for row in islice(rows, MOST)
        ]


def read_analyses(text: str) -> Addition:
    """`--analyses`: a JSON list of manifests of error analyses."""
    parts = parse_json("analyses", text, list[str], "a JSON list of files")

    def section(stages: dict[str, Stage]) -> Section | None:
        analyses = error_analyses(stages.values())
        body = page.fragment("_analyses.html", "analysed", analyses)
        return Section("analyses", "Errors", body, "checks") if analyses else None

    return Addition([open_artifact(Path(part), verify=False) for part in parts], section)


EXTRA = Extra("analyses", read_analyses)
