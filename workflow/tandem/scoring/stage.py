"""The stage `score`: what a run is worth, per query and on average."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.progress import say
from tandem.scoring.measures import Evaluation, answerable, evaluate, parse_measures
from tandem.scoring.scores import SCORES, STATISTICS

ROW_GROUP = 131_072


def run(job: Job) -> None:
    """Score a run against the qrels of a split.

    Params: measures (list of ir_measures names), split. Inputs: dataset, run.
    Writes scores.parquet (query_id, measure, value: a row for each query with a relevant judgement and each measure)
    and statistics.json (mean of each measure, number of queries, of ties in the ranking, of queries without a result).
    """
    names, split = job.params["measures"], job.params["split"]
    measures = parse_measures(names)
    source = job.inputs["run"]
    searched = source.params.get("split", split)
    if searched != split:
        raise UserError(f"{source.folder}: is a run of split {searched}, but split is {split}; give a run of {split}")
    qrels = Collection(job.inputs["dataset"]).qrels(split)
    if not answerable(qrels):
        raise UserError(f"{job.inputs['dataset'].folder}: split {split} has no relevant judgement; nothing to score")
    path = source.path("run.trec")
    result = evaluate(measures, qrels, iter_run(path))
    if result.missing == len(result.queries):
        raise UserError(f"{path}: holds no query of split {split}; give a run of {split}")
    if result.missing:
        say(f"score {job.key} · {result.missing} of {len(result.queries)} queries have no result and count as 0")
    with writing(job) as draft:
        pq.write_table(long_form(result, names), draft.path(SCORES), row_group_size=ROW_GROUP)
        means = dict(zip(names, result.values.mean(axis=0).tolist(), strict=True))
        statistics = {"mean": means, "queries": len(result.queries), "ties": result.ties, "missing": result.missing}
        draft.path(STATISTICS).write_text(json.dumps(statistics, indent=1) + "\n", encoding="utf-8")
        draft.facts.update(queries=len(result.queries), measures=len(names))


def long_form(result: Evaluation, names: list[str]) -> pa.Table:
    """Query by query, measure by measure: columns query_id, measure, value."""
    return pa.table(
        {
            "query_id": np.repeat(np.asarray(result.queries, object), len(names)),
            "measure": pa.array(names * len(result.queries), pa.string()),
            "value": result.values.ravel(),
        }
    )
