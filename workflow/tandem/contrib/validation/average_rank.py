"""Stage `average_rank`: rank each query's relevant passage among all passages of a small collection.

DPR validates its checkpoints so, with ranks from 0 (facebookresearch/DPR, `validate_average_rank`); here from 1.
"""

from collections.abc import Iterator

import numpy as np

from tandem.cluster.progress import Progress
from tandem.contrib.validation.options import AverageRankParams
from tandem.data.collection import EXCLUDED, Collection
from tandem.data.rows import PassageOrder
from tandem.errors import UserError
from tandem.evaluation.measures import Evaluation
from tandem.evaluation.scores import write_scores
from tandem.retrieval.embeddings import Embeddings, FloatVectors
from tandem.retrieval.exact import (
    Array,
    bound_difference,
    pack_keys,
    round_and_flag,
    score_vector_pairs,
)
from tandem.retrieval.retrieve import open_embeddings
from tandem.store.job import Job, writing

_QUERIES_PER_PRODUCT = 256  # queries multiplied with a block at once


def count_better(
    queries: FloatVectors, gold: Array, vectors: FloatVectors, ranks: Array, temperature: float
) -> Array:
    """Return how many passages of a block `retrieve` would rank before each query's relevant one.

    `gold` is the relevant passage's score and rank, packed, shape (queries,).
    """
    exact = queries.astype(np.float64)
    block = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True) * np.linalg.norm(block, axis=1).max()
    width = bound_difference(exact.shape[1], lengths)
    scores, is_close = round_and_flag(exact @ block.T, width, temperature)
    query, passage = np.nonzero(is_close)
    scores[is_close] = score_vector_pairs(queries[query], vectors[passage], temperature)
    is_better = pack_keys(scores, ranks) > gold[:, None]
    return np.asarray(is_better.sum(axis=1))


def find_relevant_ranks(
    queries: Embeddings,
    passages: Embeddings,
    docs: PassageOrder,
    relevant: list[list[str]],
    left_out: list[list[str]],
) -> Iterator[Array]:
    """Yield ranks from 1 of each query's first relevant passage among those that are not left out, a batch at a time.

    The rank is 0 if the corpus has none of a query's relevant passages.
    """
    ranks = docs.ranks
    temperature = passages.temperature
    with Progress("average rank", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, _QUERIES_PER_PRODUCT):
            batch = queries.take(first, first + _QUERIES_PER_PRODUCT)
            gold = np.zeros(len(batch), np.uint64)
            positions = np.zeros(len(batch), np.int64)

            def pack(query: int, ids: list[str], batch: FloatVectors = batch) -> Array:
                """Pack scores and ranks of those of a query's passages that the corpus has."""
                rows = docs.rows(ids, missing_ok=True)
                rows = rows[rows >= 0]
                repeated = np.repeat(batch[query : query + 1], len(rows), 0)
                scores = score_vector_pairs(repeated, passages.pick(rows), temperature)
                return pack_keys(scores, ranks[rows])

            for query, ids in enumerate(relevant[first : first + _QUERIES_PER_PRODUCT]):
                gold[query] = pack(query, ids).max(initial=0)
            known = np.flatnonzero(gold)
            positions[known] = 1
            for start, vectors in passages.iterate_blocks():
                part = ranks[start : start + len(vectors)]
                positions[known] += count_better(
                    batch[known], gold[known], vectors, part, temperature
                )
            for query in known.tolist():
                is_better = pack(query, left_out[first + query]) > gold[query]
                positions[query] -= is_better.sum()
            progress.add(len(batch))
            yield positions


def run(job: Job[AverageRankParams]) -> None:
    """Write scores.parquet (query_id, measure, value) and statistics.json as the stage `score` does.

    Inputs: dataset, passages, queries (embeddings), as for `retrieve`. What `skip_excluded` leaves out of a run has
    no rank. Queries whose relevant passages the corpus lacks do not count; they are `missing` in statistics.json.
    """
    passages, queries = open_embeddings(job, Embeddings)
    collection = Collection(job.inputs["dataset"])
    judged = collection.qrels(job.params.split)
    ids = queries.read_query_ids()
    relevant = list[list[str]]()
    left_out = list[list[str]]()
    for query in ids:
        grades = dict(judged.get(query, {}))
        if job.params.ignore_identical_ids:
            grades[query] = EXCLUDED
        relevant.append([doc for doc, grade in grades.items() if grade > 0])
        left_out.append([doc for doc, grade in grades.items() if grade == EXCLUDED])
    order = PassageOrder(job.inputs["dataset"])
    ranks = np.concatenate(list(find_relevant_ranks(queries, passages, order, relevant, left_out)))
    counted = np.flatnonzero(ranks)
    if not len(counted):
        raise UserError(
            f"{collection.artifact.folder}: split {job.params.split} has no relevant passage to rank"
        )
    missing = sum(map(bool, relevant)) - len(counted)
    result = Evaluation(
        [ids[at] for at in counted], ranks[counted, None].astype(np.float64), missing
    )
    with writing(job) as draft:
        write_scores(draft, result, ["average rank"])
        draft.facts.update(queries=len(counted), passages=passages.rows)
