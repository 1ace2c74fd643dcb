"""Stage `topics`: queries around three directions are three topics, whatever the number of threads."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from clustered import write_embeddings

from tandem.contrib.topics.query_clusters import run
from tandem.errors import UserError
from tandem.store.artifact import open_artifact

DIRECTIONS = np.eye(3, 8) * 4


@pytest.fixture(scope="module")
def queries(dataset, tmp_path_factory):
    noise = np.random.default_rng(0).normal(0, 0.2, (90, 8))
    vectors = (DIRECTIONS[np.arange(90) % 3] + noise).astype(np.float16)
    out = tmp_path_factory.mktemp("topics") / "results/toy/embeddings/de.train-0123456789"
    return write_embeddings(out, vectors, "queries", {"dataset": dataset}, block=32)


def topics(make_job, queries, out, clusters=3, workers=1):
    job = make_job(
        "topics", out, {"clusters": clusters, "seed": 7}, {"queries": queries}, {"workers": workers}
    )
    run(job)
    return open_artifact(out)


def test_each_direction_is_a_topic(make_job, queries, tmp_path):
    artifact = topics(make_job, queries, tmp_path / "t-0123456789")
    table = pq.read_table(artifact.path("topics.parquet")).to_pydict()
    assert table["query_id"][:2] == ["q0", "q1"]
    first = table["topic"][:3]
    assert sorted(first) == [0, 1, 2]
    assert table["topic"] == first * 30
    assert (artifact.manifest.facts["smallest"], artifact.manifest.facts["largest"]) == (30, 30)


def test_threads_change_nothing(make_job, queries, tmp_path):
    serial, threaded = (
        topics(make_job, queries, tmp_path / f"t-000000000{n}", 5, workers=n) for n in (1, 4)
    )
    assert serial.manifest.content == threaded.manifest.content


def test_more_topics_than_queries(make_job, queries, tmp_path):
    with pytest.raises(UserError, match="91 topics of 90 queries; lower train.topics.clusters"):
        topics(make_job, queries, tmp_path / "t-0123456789", 91)
