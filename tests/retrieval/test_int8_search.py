"""Whatever reads embeddings reads int8: the score that counts is that of the vectors it stands for."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.runs import iter_run
from tandem.retrieval.average_rank import run as average_rank
from tandem.retrieval.retrieve import run as retrieve
from tandem.store.artifact import open_artifact


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, embed, dual_inputs, dataset, queries):
    folder = tmp_path_factory.mktemp("int8") / "de.passages-0123456789"
    return {
        "dataset": dataset,
        "passages": embed(folder, dual_inputs, side="passages", dtype="int8"),
        "queries": queries,
    }


@pytest.fixture(scope="module")
def scores(inputs):
    """Of every query with every passage: scale times number, in float64."""
    files = [np.load(inputs["passages"].path(f"blocks/0000{number}.npy")) for number in range(4)]
    passages = np.concatenate([file["scale"].astype(np.float64)[:, None] * file["values"] for file in files])
    files = [np.load(inputs["queries"].path(f"blocks/0000{number}.npy")) for number in range(2)]
    queries = np.concatenate(files).astype(np.float64)
    return (queries[:, None] * passages).sum(axis=2).astype(np.float32)


@pytest.fixture(scope="module")
def everything(tmp_path_factory, make_job, inputs):
    """The run of all passages."""
    out = tmp_path_factory.mktemp("run") / "de.test-0123456789"
    retrieve(make_job("retrieve", out, {"depth": 60, "split": "test"}, inputs))
    return {query: (docs, scores) for query, docs, scores in iter_run(out / "run.trec")}


def test_the_run_is_that_of_a_brute_force_search(everything, inputs, scores):
    ids = Collection(inputs["dataset"]).doc_ids().to_pylist()
    assert len(everything) == 20
    for row, (docs, found) in zip(scores, everything.values(), strict=True):
        order = sorted(range(60), key=lambda at: (-row[at], ids[at]))
        assert docs == [ids[at] for at in order]
        assert np.asarray(found, np.float32).tolist() == row[order].tolist()


def test_average_ranks_are_places_in_that_run(everything, inputs, tmp_path, make_job):
    job = make_job("average_rank", tmp_path / "de-0123456789", {"split": "test"}, inputs)
    average_rank(job)
    made = pq.read_table(job.out / "scores.parquet")
    ranks = dict(zip(made["query_id"].to_pylist(), made["value"].to_pylist(), strict=True))
    relevant = {query: next(iter(judged)) for query, judged in Collection(inputs["dataset"]).qrels("test").items()}
    assert ranks == {query: docs.index(relevant[query]) + 1 for query, (docs, _) in everything.items()}
    assert json.loads(open_artifact(job.out).path("statistics.json").read_text())["missing"] == 0
