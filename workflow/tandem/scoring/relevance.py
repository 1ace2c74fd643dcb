"""Which queries are scored and which passages are relevant to them: a dataset's qrels, other labels, or matches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import pyarrow.parquet as pq

from tandem.artifact import Artifact, Job
from tandem.data.collection import QUERIES, Collection
from tandem.errors import UserError
from tandem.scoring.answers.stage import MATCHES
from tandem.scoring.measures import Qrels, answerable

# Values that follow from the top k alone; the others divide by what is relevant anywhere in the corpus.
MATCHABLE = ("Success", "RR", "P")


@dataclass(frozen=True)
class Relevance:
    """What a run is held against.

    Attributes:
        queries: what is scored and what every mean is divided by, in file order.
        qrels: query → document → relevance.
        source: `qrels`, `labels` or `match`.
    """

    queries: list[str]
    qrels: Qrels
    source: str


class Labels(Collection):
    """Qrels alone, without the corpus they belong to."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact


def relevance(job: Job, measures: Sequence[ir_measures.Measure]) -> Relevance:
    """The queries and qrels of `job.params["split"]` by the inputs: dataset and, if given, match, labels, subset.

    Raises:
        UserError: inputs that do not fit, measures that matches cannot give, or nothing left to score.
    """
    params = job.params if isinstance(job.params, dict) else job.params.model_dump()
    split, collection = params["split"], Collection(job.inputs["dataset"])
    if "match" in job.inputs:
        made = _matched(job, collection, measures)
    elif "labels" in job.inputs:
        made = _labelled(job.inputs["labels"], collection, split)
    else:
        qrels = collection.qrels(split)
        made = Relevance(answerable(qrels), qrels, "qrels")
    if not made.queries:
        where = job.inputs["labels" if made.source == "labels" else "dataset"].folder
        raise UserError(f"{where}: split {split} has no relevant judgement; nothing to score")
    return _restricted(made, job.inputs["subset"], split) if "subset" in job.inputs else made


def _labelled(labels: Artifact, collection: Collection, split: str) -> Relevance:
    """Other qrels of the same queries."""
    qrels = Labels(labels).qrels(split)
    unknown = qrels.keys() - collection.queries(split).keys()
    if unknown:
        found = f"{labels.folder}: labels {len(unknown):,} queries that split {split} lacks, the first {min(unknown)}"
        raise UserError(f"{found}; give labels of {collection.artifact.folder}")
    return Relevance(answerable(qrels), qrels, "labels")


def _matched(job: Job, collection: Collection, measures: Sequence[ir_measures.Measure]) -> Relevance:
    """A matched passage has relevance 1; all questions of the split with answers count, as in DPR's accuracy."""
    params = job.params if isinstance(job.params, dict) else job.params.model_dump()
    match, split = job.inputs["match"], params["split"]
    if "labels" in job.inputs:
        raise UserError("score: labels and match are both given; one of them says what is relevant")
    if params.get("ignore_identical_ids"):
        raise UserError("score: ignore_identical_ids and match are both set; matches count ranks before any is dropped")
    ran, matched = Path(match.upstream["run"]).name, match.params["split"]
    if ran != job.inputs["run"].key or matched != split:
        found = f"{match.folder}: matched {ran} on split {matched}"
        raise UserError(f"{found}, but scored is {job.inputs['run'].key} on split {split}; give its own matches")
    _require_matchable(measures, match.params["depth"])
    hits = pq.read_table(match.path(MATCHES), columns=["query_id", "doc_id"], filters=[("relevant", "==", True)])
    queries = list(collection.answers(split))
    qrels: Qrels = {query: {} for query in queries}
    for query, doc in zip(hits["query_id"].to_pylist(), hits["doc_id"].to_pylist(), strict=True):
        qrels[query][doc] = 1
    return Relevance(queries, qrels, "match")


def _require_matchable(measures: Sequence[ir_measures.Measure], depth: int) -> None:
    """Refuse measures that need to know every relevant passage, or more of the run than was matched."""
    for measure in measures:
        if measure.NAME not in MATCHABLE or measure.params.keys() - {"cutoff"} or "cutoff" not in measure.params:
            raise UserError(
                f"measures: {measure} cannot be told from matches: only the top {depth} of the run was searched for "
                f"answers, so not every relevant passage is known; allowed are {', '.join(f'{m}@k' for m in MATCHABLE)}"
            )
        if measure.params["cutoff"] > depth:
            found = f"measures: {measure} looks deeper than the {depth} passages per query that were matched"
            raise UserError(f"{found}; raise the depth or lower the cutoff")


def _restricted(made: Relevance, subset: Artifact, split: str) -> Relevance:
    """Only the queries that `subset` names for the split."""
    named = pq.read_table(subset.path(QUERIES), columns=["query_id"], filters=[("split", "==", split)])
    wanted = set(named["query_id"].to_pylist())
    queries = [query for query in made.queries if query in wanted]
    if not queries:
        raise UserError(f"{subset.path(QUERIES)}: names none of the {len(made.queries):,} queries of split {split}")
    return Relevance(queries, made.qrels, made.source)
