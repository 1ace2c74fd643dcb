"""The report's section on wrong results: how many queries fail, what the signals guess, and the sheet."""

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pyarrow.parquet as pq

from tandem.reporting.charts import bars
from tandem.store.lineage import Stage

MOST, CHARACTERS = 200, 400  # pairs of a sheet on the page, and of each text


def sheets(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Per error analysis its stage, `told` (summary.json), a chart of the guessed types, and the sheet's first rows."""
    made = []
    for stage in stages:
        if stage.kind == "errors":
            told = json.loads(stage.artifact.path("summary.json").read_text(encoding="utf-8"))
            guesses = {name: float(count) for name, count in told["guesses"].items()}
            said = {name: f"{count:g}" for name, count in guesses.items()}
            chart = bars("Guessed types of wrong results", guesses, "pairs", said)
            made.append({"stage": stage, "told": told, "chart": chart, "rows": _rows(stage)})
    return made


def _rows(stage: Stage) -> list[dict[str, Any]]:
    """The first pairs of the sheet, texts shortened."""
    with pq.ParquetFile(stage.artifact.path("pairs.parquet")) as file:
        rows = (row for batch in file.iter_batches(batch_size=MOST) for row in batch.to_pylist())
        return [{name: _short(value) for name, value in row.items()} for row in islice(rows, MOST)]


def _short(value: Any) -> Any:
    """A text of at most CHARACTERS characters; anything else as it is."""
    if isinstance(value, str) and len(value) > CHARACTERS:
        return f"{value[:CHARACTERS].rstrip()}…"
    return value
