"""The report's section on training queries that are similar to others: counts, examples, and what they are worth."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.reporting.charts import histogram
from tandem.scoring.scores import read_scores
from tandem.store.artifact import Artifact
from tandem.store.lineage import Stage


def similar(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Per audit: its counts, its examples, a histogram of the pairs' scores, and the systems it concerns.

    Returns:
        stage, told (summary.json), examples, chart, measures, effects; see `_effects`.
    """
    by_key = {stage.key: stage for stage in stages}
    audits = [stage for stage in by_key.values() if stage.kind == "similar_queries"]
    return [{"stage": audit, **_read(audit.artifact), **_effects(audit, by_key)} for audit in audits]


def _read(audit: Artifact) -> dict[str, Any]:
    """What the audit wrote, and a drawing of its scores."""
    told = json.loads(audit.path("summary.json").read_text(encoding="utf-8"))
    examples = json.loads(audit.path("examples.json").read_text(encoding="utf-8"))
    bins = told["histogram"]
    chart = histogram("Scores of the proposed pairs", bins["edges"], {"pairs": bins["pairs"]}, told["decided_by"])
    return {"told": told, "examples": examples, "chart": chart}


def _effects(audit: Stage, stages: dict[str, Stage]) -> dict[str, Any]:
    """Every system's scores on the queries with a similar training query and on the others (DuReader Table 6).

    Returns:
        measures (names) and effects: per system its stage, whether its dataset lacks the similar queries, how many
        queries there are of each, and their means, (measures, 2), None where there are no queries.
    """
    known = set(pq.read_table(audit.artifact.path("queries.parquet"))["query_id"].to_pylist())
    scores = [stage for stage in stages.values() if stage.kind == "score" and _concerns(stage, audit, stages)]
    measures = list(scores[0].artifact.params["measures"]) if scores else []
    effects = []
    for score in scores:
        shared = [name for name in measures if name in score.artifact.params["measures"]]
        queries, values = read_scores(score.artifact, shared)
        mine = np.array([query in known for query in queries], bool)
        means = [[_mean(column[mine]), _mean(column[~mine])] for column in values.T]
        by_measure = dict(zip(shared, means, strict=True))
        effects.append(
            {
                "run": stages[score.upstream["run"]],
                "removed": score.upstream["dataset"] != audit.upstream["dataset"],
                "queries": [int(mine.sum()), int((~mine).sum())],
                "means": [by_measure.get(name, [None, None]) for name in measures],
            }
        )
    return {"measures": measures, "effects": effects}


def _concerns(score: Stage, audit: Stage, stages: dict[str, Stage]) -> bool:
    """Whether a score is of the audited dataset, or of the same without the similar queries, on its own labels."""
    dataset = score.upstream.get("dataset", "")
    derived = stages[dataset].upstream.get("similar") == audit.key if dataset in stages else False
    whole = not {"labels", "subset"} & score.upstream.keys() and "run" in score.upstream
    return whole and (derived or dataset == audit.upstream["dataset"])


def _mean(values: Any) -> float | None:
    """The mean in percent; None of nothing."""
    return 100 * float(values.mean()) if len(values) else None
