"""A collection of a thousand passages with indexes, and a machine, for tests of estimates."""

import math
from pathlib import Path

from tandem.extras.estimate.resources import RATES, START_ENVIRONMENTS, Hardware
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[1]
SMALL = {"layers": 1, "hidden": 8, "feed_forward": 16, "vocabulary": 100}
LEARNED = {"train_sample": 500, "part": 400}
INDEXES = {
    "lists": {"type": "ivf_flat", "nlist": 10, "nprobe": 4, "recall_queries": 0, **LEARNED},
    "codes": {"type": "ivf_pq", "nlist": 10, "m": 4, "bits": 4, "opq": True, **LEARNED},
    "bytes": {"type": "sq", "sq": "8bit", "rescore": False, "recall_queries": 5, **LEARNED},
    "graph": {"type": "hnsw", "m": 3, "ef_construction": 20, "ef_search": 16, "part": 400},
    "signs": {"type": "binary", "recall_queries": 0, "part": 400},
    "words": {"factory": "IVF16,SQ8", **LEARNED},
}
N, D, QUESTIONS, DEPTH = 1000, 8, 30, 100


def planned(**more):
    """A thousand passages, 500 training and 30 dev queries, vectors of eight numbers."""
    counts = {"passages": N, "train": 500, "dev": QUESTIONS}
    config = {
        "dataset": "big",
        "datasets": {
            "big": {"source": "ir_datasets", "id": "msmarco-passage", "language": "en", "score_split": "dev",
                    "counts": counts, "tokens": {"passage": 60, "query": 8}},
        },
        "encoder": "b",
        "encoders": {"b": {"source": "hub", "name": "org/b", "revision": "main", "pooling": "cls", "shape": SMALL}},
        "models": {"de": {"objective": "dual", "candidates": {"from": "bm25", "depth": 20}}},
        "audits": {"retriever": None},
        "depth": {"train": 20, "dev": DEPTH, "test": DEPTH},
        "indexes": INDEXES,
    }  # fmt: skip
    return Plan(config | more, ROOT)


def make_machine():
    """A machine on which every rate is another power of ten, so that a sum tells what it is made of."""
    rates = {
        "faiss": 1e3,
        "faiss_alone": 1e2,
        "flat_search": 1e4,
        "compared": 1e7,
        "scanned": 1e5,
        "hops": 1e6,
        "lines": 10.0,
    }
    work, starts = dict.fromkeys(("encode", "rerank"), 0.5), dict.fromkeys(START_ENVIRONMENTS, 1.0)
    return Hardware("mine", 2.0, work, 8, dict.fromkeys(RATES, math.inf) | rates, starts, 2, 0, {})
