"""Vectors that a test stores, and exact search among them by the scores of all pairs."""

import numpy as np
import pytest

from tandem.cluster.progress import Progress
from tandem.retrieval.embeddings import Blocks, Embeddings, Stretches
from tandem.retrieval.exact import pack_keys, score_vector_pairs
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing

MEMORY = 64 << 20


@pytest.fixture
def store(tmp_path, make_job):
    """`store(vectors, block, dtype, temperature)`: embeddings of these vectors."""

    def make(vectors, block=64, dtype="fp16", temperature=1.0):
        job = make_job("embeddings", tmp_path / f"{block}{dtype}-0123456789", {"side": "passages"})
        with writing(job) as draft:
            blocks = Blocks(draft.folder, len(vectors), block, "made by a test", dtype)
            for number in range(len(blocks)):
                blocks.write(number, vectors[blocks.locate(number)], {})
            meta = {
                "rows": len(vectors),
                "block": block,
                "dtype": dtype,
                "dimension": vectors.shape[1],
            }
            write_json(draft.path("meta.json"), meta | {"temperature": temperature})
        return Embeddings(open_artifact(job.out), "passages")

    return make


def search(engine, embeddings, ranks, queries, depth, memory=MEMORY, numbers=None):
    """Sorted packed keys of each query, by the engine."""
    numbers = range(len(embeddings)) if numbers is None else numbers
    passages = Stretches(
        embeddings, numbers, ranks.astype(np.uint32), Progress("", 0, "", quiet=True)
    )
    return np.sort(engine(queries, passages, depth, memory, 1), axis=1)


def brute(embeddings, ranks, queries, depth):
    """The same keys, by the scores of all pairs."""
    vectors = np.concatenate([np.asarray(vectors) for _, vectors in embeddings.iterate_blocks()])
    temperature = embeddings.temperature
    scores = (
        score_vector_pairs(np.repeat(query[None], len(vectors), 0), vectors, temperature)
        for query in queries
    )
    keys = np.sort(np.stack([pack_keys(row, ranks) for row in scores]), axis=1)[:, -depth:]
    return np.pad(keys, ((0, 0), (max(0, depth - keys.shape[1]), 0)))


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def copies(vectors):
    """Half of them one vector, a quarter one differing from it in a single bit of one number."""
    copied = vectors.copy()
    copied[::2] = copied[0]
    copied[1::4] = copied[0]
    copied[1::4, 5] = np.nextafter(copied[0, 5], np.float16(9))
    return copied


def wide(*arrays):
    """Vectors whose numbers need more than fp16 has."""
    return [array.astype(np.float32) / 3 for array in arrays]
