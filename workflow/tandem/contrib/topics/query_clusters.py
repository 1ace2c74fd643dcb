"""Stage `topics`: cluster the training queries' vectors by k-means."""

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tandem.contrib.topics.options import TopicsParams
from tandem.errors import UserError
from tandem.extras.faiss_gpus import NONE
from tandem.extras.kmeans import Nearest, assign, find_centroids
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.faiss_search import open_threads
from tandem.store.job import Job, writing


def run(job: Job[TopicsParams]) -> None:
    """Write `topics.parquet`: each query's cluster, by the angle between vectors, for batches of one topic (TAS)."""
    embeddings = Embeddings(job.inputs["queries"], "queries")
    count = job.params.clusters
    if count > embeddings.rows:
        problem = f"{job.key}: {count:,} topics of {embeddings.rows:,} queries"
        raise UserError(f"{problem}; lower train.topics.clusters to that or less")
    vectors = np.ascontiguousarray(embeddings.take(0, embeddings.rows), np.float32)
    with open_threads(job.execution.workers) as threads:
        index = faiss.IndexFlatIP(embeddings.dimension)
        index.add(find_centroids(vectors, count, job.params.seed, threads))
        topics = assign(Nearest(index, NONE), vectors, threads)
    columns = {"query_id": embeddings.read_query_ids(), "topic": topics.astype(np.int32)}
    with writing(job) as draft:
        pq.write_table(pa.table(columns), draft.path("topics.parquet"))
        sizes = np.bincount(topics, minlength=count)
        draft.facts |= {
            "queries": len(topics),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
        }
