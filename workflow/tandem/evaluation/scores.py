"""Stage `score`: find the relevant passages, and measure a run per query. Also read the artifacts of this stage."""

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
from tandem.data.columns import Floats64
from tandem.data.observers import list_doubts
from tandem.data.runs import iter_ranking, read_matches, require_run_split, require_split_queries
from tandem.errors import UserError
from tandem.evaluation.measure_names import parse_measures
from tandem.evaluation.measures import Evaluation, Qrels, evaluate, list_answerable, skip_excluded
from tandem.stages.evaluation import OF_THE_TOP, ScoreParams
from tandem.store.artifact import Artifact
from tandem.store.files import write_json
from tandem.store.job import Draft, Job, writing


@dataclass(frozen=True)
class Relevance:
    """Hold what a run is measured against: the queries that count, in file order, and their qrels.

    `source` is where these come from: `qrels`, `labels` or `match`.
    """

    queries: list[str]
    qrels: Qrels
    source: str


def read_relevance(
    inputs: Mapping[str, Artifact],
    split: str,
    measures: Sequence[ir_measures.Measure],
    ignore_identical_ids: bool = False,
) -> Relevance:
    """Return a split's queries and qrels from the inputs dataset, run and, if present, match, labels, subset, others.

    A `UserError` for inputs that do not fit, measures that matches do not allow, or no query left to score.
    """
    collection = Collection(inputs["dataset"])
    if "match" in inputs:
        if ignore_identical_ids:
            problem = "score: ignore_identical_ids and match are both set"
            raise UserError(f"{problem}; matches count ranks before any is dropped")
        result = _read_matches(inputs, split, collection, measures)
    else:
        labels = inputs.get("labels", collection.artifact)
        qrels = Collection(labels).qrels(split)
        unknown = qrels.keys() - collection.queries(split).keys() if "labels" in inputs else None
        if unknown:
            lacks = f"labels {len(unknown):,} queries that split {split} lacks, the first {min(unknown)}"
            raise UserError(
                f"{labels.folder}: {lacks}; give labels of {collection.artifact.folder}"
            )
        result = Relevance(
            list_answerable(qrels), qrels, "labels" if "labels" in inputs else "qrels"
        )
        if not result.queries:
            raise UserError(
                f"{labels.folder}: split {split} has no relevant judgement; nothing to score"
            )
    # keep only the queries that the input names for the split, or all others
    for role in {"subset", "others"} & inputs.keys():
        path = inputs[role].path(QUERIES)
        names = pq.read_table(path, columns=["query_id"], filters=[("split", "==", split)])[
            "query_id"
        ]
        named = set(names.to_pylist())
        queries = [query for query in result.queries if (query in named) == (role == "subset")]
        if not queries:
            count = (
                f"{'none' if role == 'subset' else 'all'} of the {len(result.queries):,} queries"
            )
            raise UserError(f"{path}: names {count} of split {split}")
        result = replace(result, queries=queries)
    return result


def _read_matches(
    inputs: Mapping[str, Artifact],
    split: str,
    collection: Collection,
    measures: Sequence[ir_measures.Measure],
) -> Relevance:
    """Return qrels of matches: a matched passage has relevance 1, and all questions with answers count, as in DPR.

    Refuse measures that need every relevant passage, or more of the run than was matched.
    """
    match = inputs["match"]
    run = inputs["run"]
    if "labels" in inputs:
        raise UserError(
            "score: labels and match are both inputs; only one of them can define relevance"
        )
    matched_run = Path(match.upstream["run"]).name
    matched_split = match.params["split"]
    if matched_run != run.key or matched_split != split:
        problem = f"{match.folder}: matched {matched_run} on split {matched_split}"
        raise UserError(
            f"{problem}, but scored is {run.key} on split {split}; give its own matches"
        )
    depth: int = match.params["depth"]
    allowed = ", ".join(f"{name}@k" for name in OF_THE_TOP)
    for measure in measures:
        if measure.NAME not in OF_THE_TOP or measure.params.keys() != {"cutoff"}:
            searched = f"only the top {depth} of the run was searched for answers"
            problem = f"{searched}, so not every relevant passage is known; allowed: {allowed}"
            raise UserError(f"measures: {measure} cannot be computed from matches: {problem}")
        if measure.params["cutoff"] > depth:
            problem = f"measures: {measure} looks deeper than the {depth} passages per query that were matched"
            raise UserError(f"{problem}; raise the depth or lower the cutoff")
    qrels: Qrels = {query: {} for query in collection.answers(split)}
    for query, doc in read_matches(match):
        qrels[query][doc] = 1
    return Relevance(list(qrels), qrels, "match")


QUERY_SCORES_FILE = "scores.parquet"
_STATISTICS_FILE = "statistics.json"
_ROWS_PER_GROUP = 131_072


class ScoreSummary(BaseModel):
    """Hold statistics.json: the mean of each measure, the number of queries, and how many of them have no result."""

    mean: dict[str, float]
    queries: int = 0
    missing: int = 0


def run(job: Job[ScoreParams]) -> None:
    """Score a run against the relevance of a split, or average the scores of a group's members.

    Inputs: dataset, run; for a group the scores `member.0`, `member.1`, …
    Relevance is that of the dataset's qrels, unless an input replaces it: `match` (matches.parquet of this run: all
    questions with answers count) or `labels` (qrels.parquet). With an input `subset` (queries.parquet) only the queries
    that it names are scored, with `others` (likewise) those that it does not name.
    Writes scores.parquet (query_id, measure, value: a row for each query that counts and each measure) and
    statistics.json (`ScoreSummary`).
    """
    members = job.params.members
    names = list(job.params.measures)
    result, source, short = (
        score_run(job) if members is None else (average_members(job, members), "members", 0)
    )
    with writing(job) as draft:
        write_scores(draft, result, names)
        draft.facts.update(queries=len(result.queries), measures=len(names), relevance=source)
        if result.missing == len(result.queries):
            warn(
                job,
                draft,
                f"none of the {len(result.queries)} queries has a result: every value is 0",
            )
        elif result.missing:
            warn(
                job,
                draft,
                f"{result.missing} of {len(result.queries)} queries have no result and count as 0",
            )
        for line in list_doubts("scored", job):
            warn(job, draft, line)
        if short:
            left = f"{short} of {len(result.queries)} queries keep fewer results than the measures look at"
            by = (
                "judgements or ignore_identical_ids"
                if job.params.ignore_identical_ids
                else "judgements"
            )
            warn(job, draft, f"{left}, since {by} exclude the others; raise depth")


def score_run(job: Job[ScoreParams]) -> tuple[Evaluation, str, int]:
    """Return the values of a run, where its relevance comes from, and how many queries have too few results.

    See `_count_short`.
    """
    params = job.params
    measures = parse_measures(job.params.measures)
    ranking = job.inputs["run"]
    dataset = job.inputs["dataset"]
    require_run_split(ranking, params.split)
    judged = read_relevance(job.inputs, params.split, measures, params.ignore_identical_ids)
    ranked = iter_ranking(ranking, dataset)
    result = evaluate(measures, judged.qrels, ranked, judged.queries, params.ignore_identical_ids)
    if result.missing == len(result.queries):
        require_split_queries(ranking, Collection(dataset), params.split)
    return (
        result,
        judged.source,
        _count_short(ranking, dataset, judged, measures, params.ignore_identical_ids),
    )


def _count_short(
    run: Artifact,
    dataset: Artifact,
    judged: Relevance,
    measures: Sequence[ir_measures.Measure],
    ignore: bool,
) -> int:
    """Count the queries that have fewer results than the measures look at, because some of their results do not count.

    With `ignore`, a passage with the query's own id does not count.
    """
    if not ignore and not any(EXCLUDED in grades.values() for grades in judged.qrels.values()):
        return 0
    lengths = {query: len(docs) for query, docs, _ in iter_ranking(run, dataset)}
    left = {
        query: len(docs)
        for query, docs, _ in skip_excluded(iter_ranking(run, dataset), judged.qrels, ignore)
    }
    cut = max(lengths.values(), default=0)  # a shorter list has all that a first stage found
    least = min(cut, max(measure.params.get("cutoff", 1) for measure in measures))
    return sum(lengths.get(query) == cut and left.get(query, 0) < least for query in judged.queries)


def average_members(job: Job[ScoreParams], members: Sequence[str]) -> Evaluation:
    """Return a group's values: each member counts as one query with its mean, so that the mean is that of the members.

    BEIR reports CQADupStack in this way: the mean over its twelve forums, whatever their size.
    """
    rows = []
    for member in job.many("member"):
        means = read_score_summary(member).mean
        rows.append([means[name] for name in job.params.measures])
    return Evaluation(list(members), np.array(rows), 0)


def write_scores(draft: Draft, result: Evaluation, names: list[str]) -> None:
    """Write scores.parquet, query by query and measure by measure, and statistics.json."""
    columns = {
        "query_id": np.repeat(np.asarray(result.queries, object), len(names)),
        "measure": pa.array(names * len(result.queries), pa.string()),
        "value": result.values.ravel(),
    }
    pq.write_table(pa.table(columns), draft.path(QUERY_SCORES_FILE), row_group_size=_ROWS_PER_GROUP)
    means = dict(zip(names, result.values.mean(axis=0).tolist(), strict=True))
    summary = {"mean": means, "queries": len(result.queries), "missing": result.missing}
    write_json(draft.path(_STATISTICS_FILE), summary)


def read_score_summary(artifact: Artifact) -> ScoreSummary:
    """Return means and number of queries of a score artifact."""
    return ScoreSummary.model_validate_json(artifact.path(_STATISTICS_FILE).read_bytes())


def list_measures(artifact: Artifact) -> list[str]:
    """Return the measures of a score artifact, in the order of its rows."""
    return list(artifact.params_as(ScoreParams).measures)


def list_shared_measures(artifacts: Sequence[Artifact]) -> list[str]:
    """Return the measures that all of some score artifacts have, in the order of the first."""
    first, *others = map(list_measures, artifacts)
    shared = set(first).intersection(*others)
    return [name for name in first if name in shared]


def read_scores(artifact: Artifact, measures: Sequence[str]) -> tuple[list[str], Floats64]:
    """Return query ids in file order, and their values of some measures, shape (queries, measures).

    A measure that was not computed is a `UserError`.
    """
    path = artifact.path(QUERY_SCORES_FILE)
    available = list_measures(artifact)
    for measure in measures:
        if measure not in available:
            raise UserError(
                f"{path}: holds no {measure}; it holds {', '.join(available)}; add it to the measures"
            )
    # The stage writes a full grid, query by query, so reading it back is a reshape.
    table = pq.read_table(path, columns=["query_id", "value"])
    grid = table["value"].to_numpy().reshape(-1, len(available))
    queries: list[str] = table["query_id"].to_pylist()[:: len(available)]
    return queries, grid[:, [available.index(measure) for measure in measures]]


def read_aligned(
    artifacts: Sequence[Artifact], measures: Sequence[str]
) -> tuple[list[str], Floats64]:
    """Return the same queries of several systems: query ids and values, shape (systems, queries, measures).

    Two systems that were scored on different queries are a `UserError`.
    """
    scores = [read_scores(artifact, measures) for artifact in artifacts]
    queries = scores[0][0]
    for artifact, (others, _) in zip(artifacts, scores, strict=True):
        if others != queries:
            problem = f"scored {len(others)} queries that are not the {len(queries)} of {artifacts[0].folder}"
            raise UserError(
                f"{artifact.folder}: {problem}; systems are compared on the same dataset and split"
            )
    return queries, np.stack([values for _, values in scores])
