"""The stage `score`, and reading its artifacts: which passages are relevant, and what a run is worth per query."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from tandem.cluster.progress import warn
from tandem.data.collection import EXCLUDED, QUERIES, Collection
from tandem.data.runs import iter_run, require_split
from tandem.errors import UserError
from tandem.evaluation.matching import MATCHES
from tandem.evaluation.measures import (
    Evaluation,
    Floats64,
    Qrels,
    answerable,
    evaluate,
    parse_measures,
    without_excluded,
)
from tandem.stages.evaluation import MatchParams, ScoreParams
from tandem.store.artifact import Artifact
from tandem.store.job import Draft, Job, writing

# Values that follow from the top k alone; the others divide by what is relevant anywhere in the corpus.
MATCHABLE = ("Success", "RR", "P")


@dataclass(frozen=True)
class Relevance:
    """What a run is compared with: the queries that every mean is divided by, in file order, and their qrels.

    `source` is `qrels`, `labels` or `match`.
    """

    queries: list[str]
    qrels: Qrels
    source: str


def relevance(
    inputs: Mapping[str, Artifact],
    split: str,
    measures: Sequence[ir_measures.Measure],
    ignore_identical_ids: bool = False,
) -> Relevance:
    """The queries and qrels of a split by inputs: dataset, run and, if present, match, labels, subset, others.

    Raises:
        UserError: inputs that do not fit, measures that matches cannot give, or nothing left to score.
    """
    collection = Collection(inputs["dataset"])
    if "match" in inputs:
        if ignore_identical_ids:
            problem = "score: ignore_identical_ids and match are both set"
            raise UserError(f"{problem}; matches count ranks before any is dropped")
        result = _by_matches(inputs, split, collection, measures)
    elif "labels" in inputs:
        result = _by_labels(inputs["labels"], collection, split)
    else:
        qrels = collection.qrels(split)
        result = Relevance(answerable(qrels), qrels, "qrels")
    if not result.queries:
        where = inputs["labels" if result.source == "labels" else "dataset"].folder
        raise UserError(f"{where}: split {split} has no relevant judgement; nothing to score")
    for role in {"subset", "others"} & inputs.keys():
        result = _restrict(result, inputs[role], split, named=role == "subset")
    return result


def _by_labels(labels: Artifact, collection: Collection, split: str) -> Relevance:
    """Other qrels of the same queries."""
    qrels = Collection(labels).qrels(split)
    unknown = qrels.keys() - collection.queries(split).keys()
    if unknown:
        problem = f"{labels.folder}: labels {len(unknown):,} queries that split {split} lacks, the first {min(unknown)}"
        raise UserError(f"{problem}; give labels of {collection.artifact.folder}")
    return Relevance(answerable(qrels), qrels, "labels")


def _by_matches(
    inputs: Mapping[str, Artifact], split: str, collection: Collection, measures: Sequence[ir_measures.Measure]
) -> Relevance:
    """A matched passage has relevance 1; all questions of the split with answers count, as in DPR's accuracy."""
    match, run = inputs["match"], inputs["run"]
    if "labels" in inputs:
        raise UserError("score: labels and match are both inputs; only one of them can define relevance")
    params, matched_run = match.params_as(MatchParams), Path(match.upstream["run"]).name
    if matched_run != run.key or params.split != split:
        problem = f"{match.folder}: matched {matched_run} on split {params.split}"
        raise UserError(f"{problem}, but scored is {run.key} on split {split}; give its own matches")
    _require_matchable(measures, params.depth)
    hits = pq.read_table(match.path(MATCHES), columns=["query_id", "doc_id"], filters=[("relevant", "==", True)])
    qrels: Qrels = {query: {} for query in collection.answers(split)}
    for hit in hits.to_pylist():
        qrels[hit["query_id"]][hit["doc_id"]] = 1
    return Relevance(list(qrels), qrels, "match")


def _require_matchable(measures: Sequence[ir_measures.Measure], depth: int) -> None:
    """Refuse measures that need to know every relevant passage, or more of the run than was matched."""
    allowed = ", ".join(f"{name}@k" for name in MATCHABLE)
    for measure in measures:
        if measure.NAME not in MATCHABLE or measure.params.keys() - {"cutoff"} or "cutoff" not in measure.params:
            raise UserError(
                f"measures: {measure} cannot be computed from matches: only the top {depth} of the run was searched "
                f"for answers, so not every relevant passage is known; allowed: {allowed}"
            )
        if measure.params["cutoff"] > depth:
            problem = f"measures: {measure} looks deeper than the {depth} passages per query that were matched"
            raise UserError(f"{problem}; raise the depth or lower the cutoff")


def _restrict(judged: Relevance, subset: Artifact, split: str, named: bool) -> Relevance:
    """Keep only the queries that `subset` names for the split, or those that it does not name."""
    table = pq.read_table(subset.path(QUERIES), columns=["query_id"], filters=[("split", "==", split)])
    listed = set(table["query_id"].to_pylist())
    queries = [query for query in judged.queries if (query in listed) == named]
    if not queries:
        count = "none" if named else "all"
        raise UserError(
            f"{subset.path(QUERIES)}: names {count} of the {len(judged.queries):,} queries of split {split}"
        )
    return Relevance(queries, judged.qrels, judged.source)


SCORES, STATISTICS = "scores.parquet", "statistics.json"
ROW_GROUP = 131_072


class Summary(BaseModel):
    """statistics.json: the mean of each measure, how many queries it is over, and how many of them have no result."""

    mean: dict[str, float]
    queries: int = 0
    missing: int = 0


def run(job: Job[ScoreParams]) -> None:
    """Score a run against the relevance of a split, or average the scores of a group's members.

    Inputs: dataset, run; of a group the scores `member.0`, `member.1`, …
    Relevance is that of the dataset's qrels, unless an input says otherwise: `match` (matches.parquet of this run:
    all questions with answers count) or `labels` (qrels.parquet). An input `subset` (queries.parquet) leaves only the
    queries it names, `others` (likewise) those that it does not name.
    Writes scores.parquet (query_id, measure, value: a row for each query that counts and each measure) and
    statistics.json (`Summary`).
    """
    result, source = score_run(job) if job.params.members is None else average_members(job)
    names = list(job.params.measures)
    with writing(job) as draft:
        write_scores(draft, result, names)
        draft.facts.update(queries=len(result.queries), measures=len(names), relevance=source)
        if result.missing:
            warn(job, draft, f"{result.missing} of {len(result.queries)} queries have no result and count as 0")
        if result.short:
            left = f"{result.short} of {len(result.queries)} queries keep fewer results than the measures look at"
            warn(job, draft, f"{left}, since judgements exclude the others; raise depth.test")


def score_run(job: Job[ScoreParams]) -> tuple[Evaluation, str]:
    """The values of a run, and where its relevance comes from."""
    params, measures = job.params, parse_measures(job.params.measures)
    ranking, dataset = job.inputs["run"], job.inputs["dataset"]
    require_split(ranking, params.split)
    judged = relevance(job.inputs, params.split, measures, params.ignore_identical_ids)
    ranked = iter_run(ranking, dataset)
    result = evaluate(measures, judged.qrels, ranked, judged.queries, params.ignore_identical_ids)
    if result.missing == len(result.queries):
        raise UserError(f"{ranking.folder}: holds no query of split {params.split}; give a run of {params.split}")
    return replace(result, short=_short(ranking, dataset, judged, measures)), judged.source


def _short(run: Artifact, dataset: Artifact, judged: Relevance, measures: Sequence[ir_measures.Measure]) -> int:
    """Queries whose whole list is too short for the measures, once excluded passages are left out of it."""
    if not any(EXCLUDED in grades.values() for grades in judged.qrels.values()):
        return 0
    lengths = {query: len(docs) for query, docs, _ in iter_run(run, dataset)}
    left = {query: len(docs) for query, docs, _ in without_excluded(iter_run(run, dataset), judged.qrels)}
    cut = max(lengths.values())  # a shorter list has all that a first stage found
    least = min(cut, max(measure.params.get("cutoff", 1) for measure in measures))
    return sum(lengths.get(query) == cut and left.get(query, 0) < least for query in judged.queries)


def average_members(job: Job[ScoreParams]) -> tuple[Evaluation, str]:
    """A group's values: each member counts as one query with its mean, so that a mean is one over members.

    As BEIR reports CQADupStack: the mean over its twelve forums, whatever their size.
    """
    summaries = [read_summary(member) for member in job.many("member")]
    values = np.array([[summary.mean[name] for name in job.params.measures] for summary in summaries])
    return Evaluation(list(job.params.members or ()), values, 0), "members"


def write_scores(draft: Draft, result: Evaluation, names: list[str]) -> None:
    """Write scores.parquet, query by query and measure by measure, and statistics.json."""
    table = pa.table(
        {
            "query_id": np.repeat(np.asarray(result.queries, object), len(names)),
            "measure": pa.array(names * len(result.queries), pa.string()),
            "value": result.values.ravel(),
        }
    )
    pq.write_table(table, draft.path(SCORES), row_group_size=ROW_GROUP)
    means = dict(zip(names, result.values.mean(axis=0).tolist(), strict=True))
    summary = {"mean": means, "queries": len(result.queries), "missing": result.missing}
    draft.path(STATISTICS).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def read_summary(artifact: Artifact) -> Summary:
    """Means and number of queries of a score artifact."""
    return Summary.model_validate_json(artifact.path(STATISTICS).read_text(encoding="utf-8"))


def measures_of(artifact: Artifact) -> list[str]:
    """The measures of a score artifact, in the order of its rows."""
    return list(artifact.params_as(ScoreParams).measures)


def shared_measures(artifacts: Sequence[Artifact]) -> list[str]:
    """The measures that all of some score artifacts have, in the order of the first."""
    measures = [measures_of(artifact) for artifact in artifacts]
    return [name for name in measures[0] if all(name in others for others in measures)]


def read_scores(artifact: Artifact, measures: Sequence[str]) -> tuple[list[str], Floats64]:
    """Query ids in file order, and their values of some measures, shape (queries, measures).

    Raises:
        UserError: a measure that was not computed.
    """
    path, available = artifact.path(SCORES), measures_of(artifact)
    for measure in measures:
        if measure not in available:
            raise UserError(f"{path}: holds no {measure}; it holds {', '.join(available)}; add it to the measures")
    # The stage writes a full grid, query by query, so reading it back is a reshape.
    table = pq.read_table(path, columns=["query_id", "value"])
    grid = table["value"].to_numpy().reshape(-1, len(available))
    queries: list[str] = table["query_id"].to_pylist()[:: len(available)]
    return queries, grid[:, [available.index(measure) for measure in measures]]


def read_aligned(artifacts: Sequence[Artifact], measures: Sequence[str]) -> tuple[list[str], Floats64]:
    """The same queries of several systems: query ids and values, shape (systems, queries, measures).

    Raises:
        UserError: two systems were scored on different queries.
    """
    scores = [read_scores(artifact, measures) for artifact in artifacts]
    queries = scores[0][0]
    for artifact, (others, _) in zip(artifacts, scores, strict=True):
        if others != queries:
            raise UserError(
                f"{artifact.folder}: scored {len(others)} queries that are not the {len(queries)} of "
                f"{artifacts[0].folder}; systems are compared on the same dataset and split"
            )
    return queries, np.stack([values for _, values in scores])
