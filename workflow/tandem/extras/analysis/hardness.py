"""Stage `hardness`: how hard the negatives of some models' training lists are, and which of them may be positives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data.splits import subset
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, mean_probability, open_judges
from tandem.stages.evaluation import HardnessParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

NEGATIVES = "negatives.parquet"
COLUMNS = ("query_id", "doc_id", "label", "rank", "score", "list", "query_row", "passage_row")
QUARTILES = (0.25, 0.5, 0.75)


def run(job: Job[HardnessParams]) -> None:
    """Write negatives.parquet (source, query_id, doc_id, label, rank, score, judge) and summary.json.

    A source is a model and what its lists were drawn from: `rocketqav2: de_bm25neg, denoised`. `judge` is the judges'
    mean probability of relevance, null without judges.
    Inputs: dataset, `candidates.<i>`; `judge.<i>` with `judge_tokens.<i>`.
    """
    params, lists, judges = job.params, job.many("candidates"), open_judges(job)
    require_dataset(job, *(role for role in sorted(job.inputs) if role.startswith(("candidates.", "judge_tokens."))))
    if len(lists) != len(params.models):
        raise UserError(f"hardness: {len(lists)} training lists, but {len(params.models)} models; one name each")
    use_workers(job.execution.workers)
    with writing(job) as draft, Progress(f"hardness {job.key}", 0, "pairs") as progress:
        sources = zip(lists, params.models, params.drawn_from, strict=True)
        rows = pa.concat_tables(
            negatives(artifact, f"{model}: {source}", params.queries, judges, progress)
            for artifact, model, source in sources
        )
        pq.write_table(rows, draft.path(NEGATIVES))
        judged_by = [model.key for model in job.many("judge")]
        reports = [json.loads(artifact.path("report.json").read_text(encoding="utf-8")) for artifact in lists]
        # how many passages each rule took out when all of the lists were drawn
        dropped = {name: report["dropped"] for name, report in zip(params.models, reports, strict=True)}
        counts = summary(rows.to_pandas(), params.threshold if judges else None)
        write_json(draft.path("summary.json"), {"judges": judged_by, "sources": counts, "dropped": dropped})
        draft.facts |= {"rows": len(rows), "judges": judged_by}


def negatives(lists: Artifact, name: str, queries: int, judges: list[PairScores], progress: Progress) -> pa.Table:
    """The rows of one model's lists, of so many queries at most; `name` is what the source is called."""
    rows = _sampled(lists.path("candidates.parquet"), queries)
    source = [name if kind == "undenoised" else f"{name}, {kind}" for kind in rows["list"].to_pylist()]
    judge = pa.nulls(len(rows), pa.float32())
    if judges:
        pairs = rows["query_row"].to_numpy(), rows["passage_row"].to_numpy()
        judge = pa.array(mean_probability(judges, *pairs, progress), pa.float32())
    columns = {column: rows[column] for column in ("query_id", "doc_id", "label", "rank", "score")}
    return pa.table({"source": pa.array(source, pa.string()), **columns, "judge": judge})


def _sampled(path: Path, queries: int) -> pa.Table:
    """The rows of so many queries at most; the file, which may not fit into memory, is read twice."""
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(columns=["query_id"])
        names = dict.fromkeys((name for batch in batches for name in batch["query_id"].unique().to_pylist()), "train")
    chosen = pa.array(list(subset(names, {"train": queries})), pa.string())
    return pq.read_table(path, columns=list(COLUMNS), filters=pc.field("query_id").isin(chosen))


def summary(rows: pd.DataFrame, threshold: float | None) -> dict[str, dict[str, object]]:
    """Counts per source: its negatives and queries, quartiles of the ranks of those that a run ranked.

    With judges, whose verdict is positive above `threshold`, also the quartiles of their probabilities of negatives,
    `false_negatives` (percent of negatives above it) and `found_positives` (percent of positives above it: how far the
    verdict is to be trusted, None without any).
    """
    sources: dict[str, dict[str, object]] = {}
    for name, own in rows.groupby("source", sort=False):
        negative, positive = own[own["label"] == 0], own[own["label"] != 0]
        source: dict[str, object] = {"negatives": len(negative), "queries": int(own["query_id"].nunique())}
        source["rank"] = _quartiles(negative.loc[negative["rank"] > 0, "rank"])
        if threshold is not None:
            source["judge"] = _quartiles(negative["judge"])
            source["false_negatives"] = _above(negative["judge"], threshold)
            source["found_positives"] = _above(positive["judge"], threshold)
        sources[str(name)] = source
    return sources


def _quartiles(values: "pd.Series[Any]") -> list[float] | None:
    return [round(float(value), 6) for value in np.quantile(values, QUARTILES)] if len(values) else None


def _above(values: "pd.Series[Any]", threshold: float) -> float | None:
    return round(100 * float((values.astype(float) > threshold).mean()), 2) if len(values) else None
