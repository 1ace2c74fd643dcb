"""Stage `positive_vectors`: write the vector of each query's relevant passage in place of the query's own vector.

A search with these vectors finds the neighbours of relevant passages: look-ahead negatives (ANCE-Tele: Sun et al.
2022). A query's own vector will be among them once the model has learned.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.cluster.progress import Progress
from tandem.cluster.work import compute_origin
from tandem.contrib.live_negatives.options import PositiveVectorsParams
from tandem.data.collection import Collection
from tandem.data.rows import index_passages, index_queries, split_rows
from tandem.errors import UserError
from tandem.models.ragged import Ids
from tandem.retrieval.embeddings import FP16, FP32, Blocks, Embeddings, FloatVectors
from tandem.retrieval.inputs import require_dataset, require_passages
from tandem.store.files import write_json
from tandem.store.job import Job, writing


def find_first_positives(collection: Collection, split: str) -> tuple[list[str], Ids]:
    """Return the queries of a split with a relevant passage, in file order, and the row of one such passage for each.

    It is the first one with the highest grade among those that the corpus has; -1 if the corpus has none.
    """
    judged = collection.qrels(split)
    queries = []
    docs = []
    counts = []
    for query in index_queries(collection).ids(split_rows(collection, split)):
        relevant = [(doc, grade) for doc, grade in judged.get(query, {}).items() if grade > 0]
        if relevant:
            queries.append(query)
            docs += [doc for doc, _ in sorted(relevant, key=lambda each: -each[1])]
            counts.append(len(relevant))

    found = index_passages(collection).rows(docs, missing_ok=True)
    ends = np.cumsum(counts)
    rows = np.full(len(queries), -1, np.int64)
    for number, (end, count) in enumerate(zip(ends.tolist(), counts, strict=True)):
        own = found[end - count : end]
        if (own >= 0).any():
            rows[number] = own[own >= 0][0]
    return queries, rows


def run(job: Job[PositiveVectorsParams]) -> None:
    """Write embeddings of the split's queries that are the vectors of their relevant passages.

    Queries without one in the corpus are left out. Inputs: dataset, `passages`, and the `model` and `tokens` by which
    these were encoded.
    """
    require_passages(job, "passages")
    require_dataset(job, "tokens")
    passages = Embeddings(job.inputs["passages"], "passages")
    collection = Collection(job.inputs["dataset"])
    queries, rows = find_first_positives(collection, job.params.split)
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        raise UserError(
            f"{job.kind} {job.key}: no query of the split {job.params.split} has a relevant passage"
        )
    names = [queries[at] for at in known]
    # int8 vectors have a scale each, which a query's vector has not
    dtype = FP32 if passages.dtype == FP32 else FP16
    files = {role: job.inputs[role].manifest.checksums for role in ("dataset", "passages")}
    blocks = Blocks(job.out, len(known), passages.size, compute_origin(job, files), dtype)
    finished = blocks.check_finished(range(len(blocks)), job.key, job.execution.workers or 1)
    with (
        writing(job) as draft,
        Progress(f"{job.kind} {job.key}", len(known), "queries") as progress,
    ):
        for number in range(len(blocks)):
            own = rows[known[blocks.locate(number)]]
            if number not in finished:
                vectors: FloatVectors = passages.pick(own).astype(
                    np.float32 if dtype == FP32 else np.float16
                )
                finished[number] = blocks.write(number, vectors, {})
            progress.add(len(own))
            name = blocks.name(number)
            draft.add(
                name, blocks.locate_file(number).stat().st_size, str(finished[number]["sha256"])
            )
        meta = json.loads(job.inputs["passages"].path("meta.json").read_text())
        write_json(
            draft.path("meta.json"), meta | {"rows": len(known), "dtype": dtype, "side": "queries"}
        )
        pq.write_table(
            pa.table({"query_id": pa.array(names, pa.string())}), draft.path("ids.parquet")
        )
        draft.facts |= {"queries": len(known), "without_positive": len(queries) - len(known)}
