"""Runs over the tiny collection that find different things."""

import numpy as np
import pytest
from excluding import excluding_dataset, job_on_excluded  # noqa: F401


@pytest.fixture
def release(write_ranked, dataset, tmp_path):
    """`release(lists, split, kind=…, of=…, keep_absent=…, **params)`: a run artifact of (query, documents, scores)."""

    def make(lists, split="test", kind="imported", of=dataset, keep_absent=False, **params):
        out = tmp_path / kind / f"run{len(list(tmp_path.glob('*/*')))}-0123456789"
        settings = {"depth": 100, **({} if kind == "rerank" else {"split": split}), **params}
        return write_ranked(kind, out, settings, {"dataset": of}, lists, keep_absent=keep_absent)

    return make


@pytest.fixture
def random_hits(dataset):
    """`random_hits(split, seed, queries=None, among=60)`: for all queries, or those named, documents with scores."""
    from tandem.data.collection import Collection

    ids = Collection(dataset).doc_ids().to_pylist()

    def make(split, seed, queries=None, among=60):
        random, lists = np.random.default_rng(seed), []
        for query in Collection(dataset).queries(split):
            docs = [ids[at] for at in random.permutation(among)[:12]]
            scores = random.integers(-9, 9, 12).astype(np.float32)
            if queries is None or query in queries:
                lists.append((query, docs, scores))
        return lists

    return make
