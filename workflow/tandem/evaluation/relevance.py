"""Which queries are scored and which passages are relevant to them: a dataset's qrels, other labels, or matches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import pyarrow.parquet as pq

from tandem.data.collection import QUERIES, Collection
from tandem.errors import UserError
from tandem.evaluation.matching import MATCHES
from tandem.evaluation.measures import Qrels, answerable
from tandem.stages.evaluation import MatchParams
from tandem.store.artifact import Artifact

# Values that follow from the top k alone; the others divide by what is relevant anywhere in the corpus.
MATCHABLE = ("Success", "RR", "P")


@dataclass(frozen=True)
class Relevance:
    """What a run is compared with.

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


def relevance(
    inputs: Mapping[str, Artifact],
    split: str,
    measures: Sequence[ir_measures.Measure],
    ignore_identical_ids: bool = False,
) -> Relevance:
    """The queries and qrels of a split by a stage's inputs: dataset, run and, if present, match, labels, subset.

    Args:
        inputs: of the stage.
        split: whose queries are scored.
        measures: what will be computed.
        ignore_identical_ids: whether results whose document id is the query's are dropped, which matches do not allow.
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
    return _restrict(result, inputs["subset"], split) if "subset" in inputs else result


def _by_labels(labels: Artifact, collection: Collection, split: str) -> Relevance:
    """Other qrels of the same queries."""
    qrels = Labels(labels).qrels(split)
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
    queries = list(collection.answers(split))
    qrels: Qrels = {query: {} for query in queries}
    for query, doc in zip(hits["query_id"].to_pylist(), hits["doc_id"].to_pylist(), strict=True):
        qrels[query][doc] = 1
    return Relevance(queries, qrels, "match")


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


def _restrict(judged: Relevance, subset: Artifact, split: str) -> Relevance:
    """Keep only the queries that `subset` names for the split."""
    table = pq.read_table(subset.path(QUERIES), columns=["query_id"], filters=[("split", "==", split)])
    named = set(table["query_id"].to_pylist())
    queries = [query for query in judged.queries if query in named]
    if not queries:
        raise UserError(f"{subset.path(QUERIES)}: names none of the {len(judged.queries):,} queries of split {split}")
    return Relevance(queries, judged.qrels, judged.source)
