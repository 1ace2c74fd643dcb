"""The stage `average_rank`: where the relevant passage of each query stands among all passages of a small collection.

DPR validates its checkpoints so, with ranks from 0 (facebookresearch/DPR, `validate_average_rank`); here from 1.
"""

from collections.abc import Iterator

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import Order
from tandem.errors import UserError
from tandem.evaluation.measures import Evaluation
from tandem.evaluation.scores import write_scores
from tandem.retrieval.embeddings import Embeddings, Vectors
from tandem.retrieval.exact import Array, pack, pair_scores, rounding_width, settled
from tandem.retrieval.retrieve import open_embeddings
from tandem.stages.evaluation import AverageRankParams
from tandem.store.job import Job, writing

MEASURE = "average rank"
BATCH = 256  # queries multiplied with a block at once


def better(queries: Vectors, gold: Array, vectors: Vectors, ranks: Array, temperature: float) -> Array:
    """How many passages of a block stand before each query's relevant one, exactly as `retrieve` would rank them.

    `gold` is the relevant passage's score and rank, packed, shape (queries,).
    """
    exact, block = queries.astype(np.float64), vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True) * np.linalg.norm(block, axis=1).max()
    scores, close = settled(exact @ block.T, rounding_width(exact.shape[1], lengths), temperature)
    query, passage = np.nonzero(close)
    scores[close] = pair_scores(queries[query], vectors[passage], temperature)
    return np.asarray((pack(scores, ranks) > gold[:, None]).sum(axis=1))


def ranked(queries: Embeddings, passages: Embeddings, docs: Order, relevant: list[list[str]]) -> Iterator[Array]:
    """Ranks from 1 of each query's first relevant passage, a batch at a time; 0 where the corpus has none of them."""
    ranks, temperature = docs.ranks, passages.temperature
    with Progress("average rank", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, BATCH):
            batch = queries.take(first, first + BATCH)
            gold, positions = np.zeros(len(batch), np.uint64), np.zeros(len(batch), np.int64)
            for at, ids in enumerate(relevant[first : first + BATCH]):
                rows = docs.rows(ids, missing_ok=True)
                rows = rows[rows >= 0]
                if len(rows):
                    scores = pair_scores(np.repeat(batch[at : at + 1], len(rows), 0), passages.at(rows), temperature)
                    gold[at] = pack(scores, ranks[rows]).max()
            known = np.flatnonzero(gold)
            positions[known] = 1
            for start, vectors in passages.blocks():
                part = ranks[start : start + len(vectors)]
                positions[known] += better(batch[known], gold[known], vectors, part, temperature)
            progress.add(len(batch))
            yield positions


def run(job: Job[AverageRankParams]) -> None:
    """Write scores.parquet (query_id, measure, value) and statistics.json as the stage `score` does.

    Inputs: dataset, passages, queries (embeddings), as of `retrieve`. Queries whose relevant passages
    the corpus lacks do not count; they are `missing` in statistics.json.
    """
    passages, queries = open_embeddings(job, job.params.split)
    collection = Collection(job.inputs["dataset"])
    judged = collection.qrels(job.params.split)
    ids = queries.query_ids()
    relevant = [[doc for doc, grade in judged.get(query, {}).items() if grade > 0] for query in ids]
    ranks = np.concatenate(list(ranked(queries, passages, Order(job.inputs["dataset"]), relevant)))
    counted = np.flatnonzero(ranks)
    if not len(counted):
        raise UserError(f"{collection.artifact.folder}: split {job.params.split} has no relevant passage to rank")
    missing = sum(map(bool, relevant)) - len(counted)
    result = Evaluation([ids[at] for at in counted], ranks[counted, None].astype(np.float64), missing)
    with writing(job) as draft:
        write_scores(draft, result, [MEASURE])
        draft.facts.update(queries=len(counted), passages=passages.rows)
