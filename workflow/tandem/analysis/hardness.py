"""Stage `hardness`: how hard the negatives of some models' training lists are, and which of them may be positives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.artifact import Artifact, Job, write_json, writing
from tandem.data.select import subset
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.progress import Progress
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, mean_probability, open_judges

NEGATIVES = "negatives.parquet"
KEPT = ("query_id", "doc_id", "label", "rank", "score", "list", "query_row", "passage_row")
QUARTILES = (0.25, 0.5, 0.75)


def run(job: Job) -> None:
    """Write negatives.parquet (source, query_id, doc_id, label, rank, score, judge) and summary.json.

    A source is a model and what its lists were drawn from: `rocketqav2: de_bm25neg, denoised`. `judge` is the judges'
    mean probability of relevance, null without judges.
    Params: models and drawn_from (of each `candidates.<i>` whose they are, and the run or `random`), queries (so many
    of each at most, by their hash), threshold (a negative above it counts as false), and where there are judges
    precision and batch_tokens.
    Inputs: dataset, `candidates.<i>`; `judge.<i>` with `judge_tokens.<i>`.
    """
    lists, judges = job.many("candidates"), open_judges(job)
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("candidates.", "judge_tokens."))))
    if len(lists) != len(job.params["models"]):
        raise UserError(f"hardness: {len(lists)} training lists, but {len(job.params['models'])} models; one name each")
    use_workers(job.execution.workers)
    with writing(job) as draft, Progress(f"hardness {job.key}", 0, "pairs") as progress:
        names = zip(job.params["models"], job.params["drawn_from"], strict=True)
        parts = [part(one, ": ".join(name), job, judges, progress) for one, name in zip(lists, names, strict=True)]
        rows = pa.concat_tables(parts)
        pq.write_table(rows, draft.path(NEGATIVES))
        told = summary(rows.to_pandas(), job.params["threshold"] if judges else None)
        judged_by = [model.key for model in job.many("judge")]
        dropped = {name: _dropped(one) for one, name in zip(lists, job.params["models"], strict=True)}
        write_json(draft.path("summary.json"), {"judges": judged_by, "sources": told, "dropped": dropped})
        draft.facts |= {"rows": len(rows), "judges": judged_by}


def part(lists: Artifact, name: str, job: Job, judges: list[PairScores], progress: Progress) -> pa.Table:
    """The rows of one model's lists, of the sampled queries; `name` is what the source is called."""
    rows = _sampled(lists.path("candidates.parquet"), job.params["queries"])
    source = [name if kind == "undenoised" else f"{name}, {kind}" for kind in rows["list"].to_pylist()]
    judge = pa.nulls(len(rows), pa.float32())
    if judges:
        queries, passages = rows["query_row"].to_numpy(), rows["passage_row"].to_numpy()
        judge = pa.array(mean_probability(judges, queries, passages, progress), pa.float32())
    told = {column: rows[column] for column in ("query_id", "doc_id", "label", "rank", "score")}
    return pa.table({"source": pa.array(source, pa.string()), **told, "judge": judge})


def _sampled(path: Path, queries: int) -> pa.Table:
    """The rows of so many queries at most; the file is read twice, batch by batch, since it may not fit into memory."""
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(columns=["query_id"])
        names = dict.fromkeys((name for one in batches for name in one["query_id"].unique().to_pylist()), "train")
        kept = pa.array(list(subset(names, {"train": queries})), pa.string())
        found = [one.filter(pc.is_in(one["query_id"], kept)) for one in file.iter_batches(columns=list(KEPT))]
        return pa.Table.from_batches(found, pa.schema([file.schema_arrow.field(name) for name in KEPT]))


def summary(rows: pd.DataFrame, threshold: float | None) -> dict[str, dict[str, Any]]:
    """Per source: how many negatives, the quartiles of their ranks, and what the judges say.

    Args:
        rows: of negatives.parquet.
        threshold: the judges' verdict is positive above it; None without judges.
    Returns:
        Source → `negatives`, `queries`, `rank` (quartiles of those that a run ranked); with judges also `judge`
        (quartiles of negatives), `false_negatives` (percent of negatives above the threshold) and
        `found_positives` (percent of positives above it: how far the verdict is to be trusted, None without any).
    """
    made: dict[str, dict[str, Any]] = {}
    for source, own in rows.groupby("source", sort=False):
        negatives, positives = own[own["label"] == 0], own[own["label"] != 0]
        ranked = negatives.loc[negatives["rank"] > 0, "rank"]
        told: dict[str, Any] = {"negatives": len(negatives), "queries": int(own["query_id"].nunique())}
        told["rank"] = _quartiles(ranked)
        if threshold is not None:
            told["judge"] = _quartiles(negatives["judge"])
            told["false_negatives"] = _above(negatives["judge"], threshold)
            told["found_positives"] = _above(positives["judge"], threshold)
        made[str(source)] = told
    return made


def _dropped(lists: Artifact) -> dict[str, int]:
    """How many passages each rule took out when all of the lists were drawn."""
    report = json.loads(lists.path("report.json").read_text(encoding="utf-8"))
    return dict(report["dropped"])


def _quartiles(values: "pd.Series[Any]") -> list[float] | None:
    """25, 50 and 75 %, linearly interpolated; None of nothing."""
    return [round(float(one), 6) for one in np.quantile(values, QUARTILES)] if len(values) else None


def _above(values: "pd.Series[Any]", threshold: float) -> float | None:
    """Percent of the values above a threshold; None of nothing."""
    return round(100 * float((values.astype(float) > threshold).mean()), 2) if len(values) else None
