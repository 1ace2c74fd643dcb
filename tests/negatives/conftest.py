"""A run over the train queries of the tiny collection, and training lists drawn from it."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def train_run(results, write_ranked, dataset):
    """Of every train query nine passages: the three of its own subject and those of the next two."""
    return run_of("train", results, write_ranked, dataset)


@pytest.fixture(scope="session")
def dev_run(results, write_ranked, dataset):
    """The same of every dev query."""
    return run_of("dev", results, write_ranked, dataset)


def run_of(split, results, write_ranked, dataset):
    """The run of a split."""
    from tandem.data.collection import Collection

    collection = Collection(dataset)
    ids = collection.doc_ids().to_pylist()
    ranked = ((q, [ids[(3 * i + j) % 60] for j in range(9)], np.arange(9.0, 0, -1))
              for i, q in enumerate(collection.queries(split)))  # fmt: skip
    out = results / "bm25" / f"bm25.{split}-00000000c0"
    return write_ranked("bm25", out, {"depth": 9}, {"dataset": dataset}, ranked)
