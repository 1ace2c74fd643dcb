"""Vectors in clusters, as the artifacts that the stage `embeddings` writes; corpora and queries that go with them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.retrieval.embeddings import name_block, quantise
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import Job, writing

DIM, CLUSTERS = 32, 40


def vectors(count, seed, normalize=True):
    """fp16 vectors around 40 centres that are the same for every seed, shape (count, 32)."""
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, DIM))
    rng = np.random.default_rng([seed, count])
    points = centres[rng.integers(0, CLUSTERS, count)] + 0.35 * rng.standard_normal((count, DIM))
    if normalize:
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float16)


def write_embeddings(out, rows, side, upstream, block=512, temperature=1.0, dtype="fp16"):
    """An `embeddings` artifact of given vectors; `upstream` are the dataset's, model's and token ids' artifacts."""
    params = {"side": side, "block": block} | ({"split": "test"} if side == "queries" else {})
    job = Job("embeddings", out, params, upstream)
    with writing(job) as draft:
        for number, start in enumerate(range(0, len(rows), block)):
            part = rows[start : start + block]
            np.save(draft.path(name_block(number)), quantise(part) if dtype == "int8" else part)
        meta = {
            "rows": len(rows),
            "block": block,
            "dimension": rows.shape[1],
            "temperature": temperature,
            "dtype": dtype,
        }
        write_json(draft.path("meta.json"), meta | {"side": side, "normalize": True})
        if side == "queries":
            ids = [f"q{number}" for number in range(len(rows))]
            pq.write_table(pa.table({"query_id": ids}), draft.path("ids.parquet"))
    return open_artifact(out)


def brute(queries, passages, k):
    """Rows of each query's best by the float64 product, rounded to float32, ties by row; shape (queries, k)."""
    scores = (queries.astype(np.float64) @ passages.astype(np.float64).T).astype(np.float32)
    return np.lexsort((np.broadcast_to(np.arange(len(passages)), scores.shape), -scores))[:, :k]


def recall(ranks, true):
    """Mean share of the true rows that were found."""
    return float(
        np.mean(
            [len(set(ours) & set(best)) / len(best) for ours, best in zip(ranks, true, strict=True)]
        )
    )
