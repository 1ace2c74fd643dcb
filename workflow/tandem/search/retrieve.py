"""Stage `retrieve`: the best passages of each query by exact inner product, block by block, as a TREC run.

Ties are broken by document id, also at the cut. No torch here: its OpenMP and FAISS's do not share a process well.
"""

from collections.abc import Iterator
from pathlib import Path

import faiss
import pyarrow.parquet as pq

from tandem.artifact import Job, writing
from tandem.data.collection import Collection
from tandem.data.rows import IdRows, doc_rows
from tandem.data.runs import Floats, write_run
from tandem.errors import UserError
from tandem.progress import Progress
from tandem.search.blocks import Embeddings
from tandem.search.exact import Best, BlockSearch
from tandem.search.partners import require_dataset

BATCH = 1024
KEPT = 256 << 20  # bytes of running results: so many queries pass over the corpus together


def check(job: Job) -> tuple[Embeddings, Embeddings]:
    """Open passages and queries; a `UserError` unless one model made both from this dataset and these token ids."""
    require_dataset(job, "passages", "queries")
    passages, queries = job.inputs["passages"], job.inputs["queries"]
    for role in ("model", "tokens"):
        left, right = (Path(artifact.upstream[role]).name for artifact in (passages, queries))
        if left != right:
            raise UserError(f"retrieve: passages were embedded with the {role} {left}, queries with {right}")
    split = queries.params["split"]
    if split != job.params["split"]:
        raise UserError(f"{queries.folder}: holds queries of the split {split}; expected {job.params['split']}")
    return Embeddings(passages, "passages"), Embeddings(queries, "queries")


def search(
    job: Job, passages: Embeddings, queries: Embeddings, docs: IdRows
) -> Iterator[tuple[str, list[str], Floats]]:
    """(query, documents, scores) of each query, best first; memory does not grow with the number of passages."""
    depth: int = min(job.params["depth"], passages.rows)
    ids: list[str] = pq.read_table(queries.artifact.path("ids.parquet"))["query_id"].to_pylist()
    order, ranks = docs.ranks()
    group = max(BATCH, KEPT // (8 * depth) // BATCH * BATCH)
    steps = -(-queries.rows // group) * len(passages)
    with Progress(f"retrieve {job.key}", steps, "blocks") as progress:
        for first in range(0, queries.rows, group):
            asked = queries.take(first, first + group)
            best = Best(len(asked), depth)
            for start, vectors in passages.blocks():
                block = BlockSearch(vectors, ranks[start : start + len(vectors)], passages.meta["temperature"])
                for at in (slice(i, i + BATCH) for i in range(0, len(asked), BATCH)):
                    best.add(at, block.candidates(asked[at], depth, best.floors(at)))
                progress.add(1)
            for query in range(len(asked)):
                found, scores = best.ranked(query)
                yield ids[first + query], docs.ids(order[found]), scores


def run(job: Job) -> None:
    """Search and write `run.trec`."""
    passages, queries = check(job)
    if workers := job.execution.get("workers"):
        faiss.omp_set_num_threads(workers)
    docs = doc_rows(Collection(job.inputs["dataset"]))
    with writing(job) as draft:
        lines = write_run(draft.path("run.trec"), search(job, passages, queries, docs), job.key)
        draft.facts |= {"queries": queries.rows, "lines": lines}
