"""Average ranks are the places of relevant passages in the run of all passages, whatever vectors are stored as."""

import json

import pyarrow.parquet as pq
import pytest
from trec import iter_trec

from tandem.contrib.validation.average_rank import run as rank_relevant
from tandem.data.collection import Collection
from tandem.retrieval.encode import run as encode
from tandem.retrieval.retrieve import run as retrieve
from tandem.store.artifact import open_artifact

ENCODE = {"block": 16, "batch_tokens": 256, "precision": "fp32"}


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_average_ranks_are_places_in_that_run(
    dtype, make_job, dataset, dual_model, tokens, tmp_path
):
    upstream = {"dataset": dataset, "model": dual_model, "tokens": tokens}
    inputs = {"dataset": dataset}
    as_queries = {"split": "test"} | ({"dtype": dtype} if dtype == "fp32" else {})
    for side, more in (("passages", {"dtype": dtype}), ("queries", as_queries)):
        out = tmp_path / f"de.{side}-0123456789"
        encode(make_job("embeddings", out, {**ENCODE, "side": side, **more}, upstream))
        inputs[side] = open_artifact(out)
    searched = tmp_path / "run/de.test-0123456789"
    retrieve(make_job("retrieve", searched, {"depth": 60, "split": "test"}, inputs))
    everything = {query: docs for query, docs, _ in iter_trec(searched / "run.trec")}

    job = make_job("average_rank", tmp_path / "de-0123456789", {"split": "test"}, inputs)
    rank_relevant(job)
    table = pq.read_table(job.out / "scores.parquet")
    ranks = dict(zip(table["query_id"].to_pylist(), table["value"].to_pylist(), strict=True))
    judged = Collection(dataset).qrels("test")
    expected = {}
    for query, docs in everything.items():
        relevant = next(iter(judged[query]))
        expected[query] = docs.index(relevant) + 1
    assert ranks == expected
    assert json.loads(open_artifact(job.out).path("statistics.json").read_text())["missing"] == 0
