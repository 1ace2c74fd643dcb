"""Stage `hardness`: measure how hard the negatives of training lists are, and which of them may be positives."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.contrib.analysis.options import NEGATIVES_FILE, HardnessParams
from tandem.data.columns import DatasetNames
from tandem.data.splits import draw_subset
from tandem.errors import UserError
from tandem.models.device import use_workers
from tandem.retrieval.inputs import require_dataset
from tandem.retrieval.pair_scores import PairScores, average_probabilities, open_judges
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing
from tandem.training.lists import add_ids

_LIST_COLUMNS = ("query_row", "passage_row", "label", "rank", "score", "list")
_QUARTILES = (0.25, 0.5, 0.75)


def run(job: Job[HardnessParams]) -> None:
    """Write negatives.parquet (source, query_id, doc_id, label, rank, score, judge) and summary.json.

    A source is a model and the origin of its lists, such as `rocketqav2: de_bm25neg, denoised`. `judge` is the judges'
    mean probability of relevance, null without judges.
    Inputs: dataset, `candidates.<i>`; `judge.<i>` with `judge_tokens.<i>`.
    """
    params, lists = job.params, job.many("candidates")
    judges = open_judges(job)
    require_dataset(
        job,
        *(role for role in sorted(job.inputs) if role.startswith(("candidates.", "judge_tokens."))),
    )
    if len(lists) != len(params.models):
        raise UserError(
            f"hardness: {len(lists)} training lists, but {len(params.models)} models; one name each"
        )
    use_workers(job.execution.workers)

    names = DatasetNames(job.inputs["dataset"])
    with writing(job) as draft, Progress(f"hardness {job.key}", 0, "pairs") as progress:
        parts, dropped = [], {}
        for artifact, model, origin in zip(lists, params.models, params.drawn_from, strict=True):
            parts.append(
                read_negatives(
                    artifact, f"{model}: {origin}", names, params.queries, judges, progress
                )
            )
            # how many passages each rule removed when all of the lists were drawn
            report = json.loads(artifact.path("report.json").read_text(encoding="utf-8"))
            dropped[model] = report["dropped"]
        rows = pa.concat_tables(parts)
        pq.write_table(rows, draft.path(NEGATIVES_FILE))

        judged_by = [model.key for model in job.many("judge")]
        counts = describe_negatives(rows.to_pandas(), params.threshold if judges else None)
        write_json(
            draft.path("summary.json"), {"judges": judged_by, "sources": counts, "dropped": dropped}
        )
        draft.facts |= {"rows": len(rows), "judges": judged_by}


def read_negatives(
    lists: Artifact,
    name: str,
    names: DatasetNames,
    queries: int,
    judges: list[PairScores],
    progress: Progress,
) -> pa.Table:
    """Return the rows of one model's lists for at most `queries` queries; `name` is the name of the source.

    The file may not fit into memory, so it is read twice.
    """
    path = lists.path("candidates.parquet")
    row_by_query: dict[str, int] = {}
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["query_row"]):
            row_by_query |= {
                names.queries[row]: row for row in batch["query_row"].unique().to_pylist()
            }

    sampled = draw_subset(dict.fromkeys(row_by_query, "train"), {"train": queries})
    sampled_rows = pa.array([row_by_query[query] for query in sampled], pa.uint32())
    in_sample = pc.field("query_row").isin(sampled_rows)
    rows = add_ids(pq.read_table(path, columns=list(_LIST_COLUMNS), filters=in_sample), names)

    sources = [
        name if kind == "undenoised" else f"{name}, {kind}" for kind in rows["list"].to_pylist()
    ]
    probabilities = pa.nulls(len(rows), pa.float32())
    if judges:
        query_numbers, passage_numbers = (
            rows["query_row"].to_numpy(),
            rows["passage_row"].to_numpy(),
        )
        scores = average_probabilities(judges, query_numbers, passage_numbers, progress)
        probabilities = pa.array(scores, pa.float32())
    columns = {column: rows[column] for column in ("query_id", "doc_id", "label", "rank", "score")}
    return pa.table({"source": pa.array(sources, pa.string()), **columns, "judge": probabilities})


def describe_negatives(rows: pd.DataFrame, threshold: float | None) -> dict[str, dict[str, object]]:
    """Return for each source the numbers of its negatives and queries, and quartiles of the negatives' ranks in a run.

    With judges, also return the quartiles of their probabilities for negatives, `false_negatives` (percent of negatives
    above `threshold`) and `found_positives` (percent of positives above it, which shows how far the judges can be
    trusted). Both are None if there are no such passages.
    """
    sources: dict[str, dict[str, object]] = {}
    for name, own in rows.groupby("source", sort=False):
        negative, positive = own[own["label"] == 0], own[own["label"] != 0]
        source: dict[str, object] = {
            "negatives": len(negative),
            "queries": int(own["query_id"].nunique()),
        }
        source["rank"] = _find_quartiles(negative.loc[negative["rank"] > 0, "rank"])
        if threshold is not None:
            source["judge"] = _find_quartiles(negative["judge"])
            source["false_negatives"] = _share_above(negative["judge"], threshold)
            source["found_positives"] = _share_above(positive["judge"], threshold)
        sources[str(name)] = source
    return sources


def _find_quartiles(values: "pd.Series[Any]") -> list[float] | None:
    return (
        [round(float(value), 6) for value in np.quantile(values, _QUARTILES)]
        if len(values)
        else None
    )


def _share_above(values: "pd.Series[Any]", threshold: float) -> float | None:
    return round(100 * float((values.astype(float) > threshold).mean()), 2) if len(values) else None
