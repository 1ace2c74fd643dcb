"""The stage `score`: what a run is worth, per query and on average."""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import say
from tandem.data.runs import Floats, iter_run
from tandem.errors import UserError
from tandem.scoring.measures import Evaluation, evaluate, parse_measures
from tandem.scoring.partners import run_path
from tandem.scoring.relevance import relevance
from tandem.scoring.scores import SCORES, STATISTICS, statistics
from tandem.store.job import Job, writing

ROW_GROUP = 131_072


def run(job: Job) -> None:
    """Score a run against the relevance of a split, or average the scores of a group's members.

    Params: measures (list of ir_measures names); split; ignore_identical_ids (absent: false); members (names, of a
    group). Inputs: dataset, run; of a group the scores `member.0`, `member.1`, …
    Relevance is that of the dataset's qrels, unless an input says otherwise: `match` (matches.parquet of this run:
    all questions with answers count) or `labels` (qrels.parquet). An input `subset` (queries.parquet) leaves only the
    queries it names.
    Writes scores.parquet (query_id, measure, value: a row for each query that counts and each measure) and
    statistics.json (mean of each measure, number of queries, of ties in the ranking, of queries without a result).
    """
    result, source = average(job) if "members" in job.params else scored(job)
    names = job.params["measures"]
    with writing(job) as draft:
        pq.write_table(long_form(result, names), draft.path(SCORES), row_group_size=ROW_GROUP)
        means = dict(zip(names, result.values.mean(axis=0).tolist(), strict=True))
        summary = {"mean": means, "queries": len(result.queries), "ties": result.ties, "missing": result.missing}
        draft.path(STATISTICS).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        draft.facts.update(queries=len(result.queries), measures=len(names), relevance=source)


def scored(job: Job) -> tuple[Evaluation, str]:
    """A run's values, and where its relevance comes from."""
    measures = parse_measures(job.params["measures"])
    path = run_path(job)
    told = relevance(job, measures)
    ranked: Iterable[tuple[str, Sequence[str], Floats]] = iter_run(path)
    if job.params.get("ignore_identical_ids", False):
        ranked = others(ranked)
    result = evaluate(measures, told.qrels, ranked, told.queries)
    if result.missing == len(result.queries):
        split = job.params["split"]
        raise UserError(f"{path}: holds no query of split {split}; give a run of {split}")
    if result.missing:
        say(f"score {job.key} · {result.missing} of {len(result.queries)} queries have no result and count as 0")
    return result, told.source


def average(job: Job) -> tuple[Evaluation, str]:
    """A group's values: each member counts as one query with its mean, so that a mean is one over members.

    As BEIR reports CQADupStack: the mean over its twelve forums, whatever their size.
    """
    members, names = job.many("member"), job.params["measures"]
    told = [statistics(member) for member in members]
    values = np.array([[one["mean"][name] for name in names] for one in told])
    return Evaluation(job.params["members"], values, sum(one["ties"] for one in told), 0), "members"


def others(
    run: Iterable[tuple[str, Sequence[str], Floats]],
) -> Iterator[tuple[str, list[str], Floats]]:
    """A run without the results whose document id is the query's: BEIR's rule where queries come from the corpus.

    Source: beir-cellar/beir, `EvaluateRetrieval.evaluate(ignore_identical_ids=True)`.
    """
    for query, docs, scores in run:
        kept = [at for at, doc in enumerate(docs) if doc != query]
        if kept:
            yield query, [docs[at] for at in kept], scores[kept]


def long_form(result: Evaluation, names: list[str]) -> pa.Table:
    """Query by query, measure by measure: columns query_id, measure, value."""
    return pa.table(
        {
            "query_id": np.repeat(np.asarray(result.queries, object), len(names)),
            "measure": pa.array(names * len(result.queries), pa.string()),
            "value": result.values.ravel(),
        }
    )
