"""The stage `average_rank`: where the relevant passage of each query stands among all passages of a small collection.

DPR validates its checkpoints so, because full retrieval costs too much to ask often (facebookresearch/DPR,
`validate_average_rank`; the pool there: 30 hard and 30 other negatives of each query, all queries' together). DPR
counts ranks from 0, here the first is 1; with several processes its pool is what one process read, here the whole.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.data.collection import Collection
from tandem.data.rows import Order
from tandem.errors import UserError
from tandem.evaluation.measures import Evaluation
from tandem.evaluation.scores import write_scores
from tandem.retrieval.embeddings import Embeddings, Vectors
from tandem.retrieval.exact import ROUNDING, pack, pair_scores, unpack
from tandem.retrieval.retrieve import open_embeddings
from tandem.stages.evaluation import AverageRankParams
from tandem.store.job import Job, writing

Array = np.ndarray[Any, np.dtype[Any]]
MEASURE = "average rank"
BATCH = 256  # queries multiplied with a block at once


def better(queries: Vectors, gold: Array, vectors: Vectors, ranks: Array, temperature: float) -> Array:
    """How many passages of a block stand before each query's relevant one, exactly as `retrieve` would rank them.

    float32 products decide but where they are within their rounding error of the relevant passage's score; there the
    exact score does, and of equal scores the lower id. `gold` is the relevant passage's score and rank, packed.
    """
    exact_queries, block = queries.astype(np.float32), vectors.astype(np.float32)
    scores = exact_queries @ block.T / np.float32(temperature)
    lengths = np.linalg.norm(exact_queries.astype(np.float64), axis=1) * float(np.linalg.norm(block, axis=1).max())
    error = (exact_queries.shape[1] + 8) * ROUNDING * lengths / temperature
    from_gold = scores - unpack(gold)[0][:, None]
    before: Array = (from_gold > 2 * error[:, None]).sum(1)
    query, passage = np.nonzero(np.abs(from_gold) <= 2 * error[:, None])
    exact = pack(pair_scores(queries[query], vectors[passage], temperature), ranks[passage])
    np.add.at(before, query, exact > gold[query])
    return before


def ranked(queries: Embeddings, passages: Embeddings, docs: Order, relevant: list[list[str]]) -> Iterator[Array]:
    """Ranks from 1 of each query's first relevant passage, a batch at a time; 0 where the corpus has none of them."""
    ranks = docs.ranks
    temperature = passages.temperature
    with Progress("average rank", queries.rows, "queries") as progress:
        for first in range(0, queries.rows, BATCH):
            batch = queries.take(first, first + BATCH)
            rows = [docs.rows(ids, missing_ok=True) for ids in relevant[first : first + BATCH]]
            gold = np.zeros(len(batch), np.uint64)
            for start, vectors in passages.blocks():
                for at, own in enumerate(rows):
                    here = own[(own >= start) & (own < start + len(vectors))]
                    pairs = np.repeat(batch[at : at + 1], len(here), 0), vectors[here - start]
                    keys = pack(pair_scores(*pairs, temperature), ranks[here])
                    gold[at] = max(gold[at], keys.max(initial=np.uint64(0)))
            known = np.flatnonzero(gold)
            positions = np.zeros(len(batch), np.int64)
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
    ids: list[str] = pq.read_table(queries.artifact.path("ids.parquet"))["query_id"].to_pylist()
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
