"""Runs that training lists are drawn from, and lists as tests read them."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.data.columns import DatasetNames
from tandem.store.artifact import open_artifact
from tandem.training.lists import add_ids


def listed_rows(lists):
    """The lines of a `candidates` artifact, with the ids of their queries and passages."""
    project = lists.folder.parents[3]  # folders of a graph are relative to it
    names = DatasetNames(open_artifact(project / lists.upstream["dataset"]))
    return add_ids(pq.read_table(lists.path("candidates.parquet")), names).to_pylist()


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
