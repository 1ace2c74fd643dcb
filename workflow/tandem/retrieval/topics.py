"""Stage `topics`: queries in clusters by the angle between their vectors, for batches of one topic (TAS)."""

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.indexes.threads import Nearest, alone, assign, centroids
from tandem.stages.negatives import TopicsParams
from tandem.store.job import Job, writing


def run(job: Job[TopicsParams]) -> None:
    """Write `topics.parquet`: the topic of each query, the nearest of k-means' centroids."""
    embeddings, count = Embeddings(job.inputs["queries"], "queries"), job.params.clusters
    if count > embeddings.rows:
        problem = f"{job.key}: {count:,} topics of {embeddings.rows:,} queries"
        raise UserError(f"{problem}; lower train.topics.clusters to that or less")
    vectors = np.ascontiguousarray(embeddings.take(0, embeddings.rows), np.float32)
    with alone(job.execution.workers) as threads:
        index = faiss.IndexFlatIP(embeddings.dimension)
        index.add(centroids(vectors, count, job.params.seed, threads))
        topics = assign(Nearest(index, "none"), vectors, threads)
    columns = {"query_id": embeddings.query_ids(), "topic": topics.astype(np.int32)}
    with writing(job) as draft:
        pq.write_table(pa.table(columns), draft.path("topics.parquet"))
        sizes = np.bincount(topics, minlength=count)
        draft.facts |= {"queries": len(topics), "smallest": int(sizes.min()), "largest": int(sizes.max())}
