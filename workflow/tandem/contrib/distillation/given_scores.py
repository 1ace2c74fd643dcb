"""Stage `given_scores`: write the scores in a dataset's own training lists, so that they can teach as a run's do."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.contrib.distillation.options import GivenScoresParams
from tandem.data.collection import LISTS, Collection
from tandem.data.rows import index_passages, index_queries
from tandem.data.runs import RUN_FILE, NamedRanking, convert_to_rows, write_lists
from tandem.errors import UserError
from tandem.store.job import Job, writing


def run(job: Job[GivenScoresParams]) -> None:
    """Write the scores of all passages in the training lists of the input `dataset` in the columns of a run.

    Equal scores stay equal: a run's ties are broken, but a loss of pairs does not count two equal scores as a pair.

    Raises:
        UserError: see `check_scores`.
    """
    collection = Collection(job.inputs["dataset"])
    queries = collection.queries(job.params.split)
    check_scores(collection, job.params, queries)
    with writing(job) as draft, Progress(f"given_scores {job.key}", 0, "queries") as progress:
        scored = _read_scores(collection, queries, progress)
        docs, names = index_passages(collection), index_queries(collection)
        write_lists(draft.path(RUN_FILE), convert_to_rows(job, scored, docs, names))
        draft.facts["queries"] = progress.done


def check_scores(
    collection: Collection, params: GivenScoresParams, queries: dict[str, str]
) -> None:
    """Refuse lists of a split's queries if a passage has no score, or one that is not a number or not a logit.

    Scores that are all between 0 and 1 are probabilities, not logits.
    """
    if LISTS not in collection.artifact.manifest.files:
        raise UserError(f"{collection.artifact.folder}: has no training lists of its own")
    path = collection.artifact.path(LISTS)
    table = pq.read_table(path, columns=["query_id", "score"])
    of_split = pc.is_in(
        table["query_id"], value_set=pa.array(list(queries), table["query_id"].type)
    )
    scores = table["score"].filter(of_split)
    lists = f"{path}: of the {len(scores):,} passages in lists of split {params.split}"
    if scores.null_count == len(scores):
        raise UserError(f"{lists} none has a score; name another teacher")
    if scores.null_count:
        raise UserError(f"{lists} {scores.null_count:,} have no score; give each a score")
    values = scores.to_numpy()
    infinite = int((~np.isfinite(values)).sum())
    if infinite:
        raise UserError(
            f"{lists} {infinite:,} have a score that is not a finite number; mend these"
        )
    if params.as_logits and values.min() >= 0 and values.max() <= 1:
        problem = "all have a score from 0 to 1, a probability, but distil.loss reads logits"
        raise UserError(f"{lists} {problem}; give logits, or choose a loss of other scores")


def _read_scores(
    collection: Collection, queries: dict[str, str], progress: Progress
) -> Iterator[NamedRanking]:
    """Yield each query's passages with their scores; a passage that is listed twice has its first score."""
    for query, listed in collection.lists():
        if query not in queries:
            continue
        scores: dict[str, float] = {}
        for doc, _, score in listed:
            assert score is not None  # `check_scores` has looked
            scores.setdefault(doc, score)
        progress.add(1)
        yield query, list(scores), list(scores.values())
