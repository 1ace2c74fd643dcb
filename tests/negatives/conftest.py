"""A run over the train queries of the tiny collection, and training lists drawn from it."""

import numpy as np
import pytest

from tandem.store.artifact import open_artifact
from tandem.store.job import writing


@pytest.fixture(scope="session")
def train_run(results, make_job, dataset):
    """Of every train query nine passages: the three of its own subject and those of the next two."""
    return run_of("train", results, make_job, dataset)


@pytest.fixture(scope="session")
def dev_run(results, make_job, dataset):
    """The same of every dev query."""
    return run_of("dev", results, make_job, dataset)


def run_of(split, results, make_job, dataset):
    """The run of a split."""
    from tandem.data.collection import Collection
    from tandem.data.runs import write_run

    collection = Collection(dataset)
    ids = collection.doc_ids().to_pylist()
    job = make_job("bm25", results / "bm25" / f"bm25.{split}-00000000c0", {"depth": 9}, {"dataset": dataset})
    with writing(job) as draft:
        ranked = ((q, [ids[(3 * i + j) % 60] for j in range(9)], np.arange(9.0, 0, -1))
                  for i, q in enumerate(collection.queries(split)))  # fmt: skip
        write_run(job, draft, ranked)
    return open_artifact(job.out)
