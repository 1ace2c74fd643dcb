"""A training with batches of one topic and balanced margins, by the stages themselves."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data.collection import Collection
from tandem.data.rows import index_queries
from tandem.stages import KINDS
from tandem.store.artifact import open_artifact
from tandem.store.job import load, writing
from tandem.training.stage import find_arrangement, run

TRAIN = {"steps": 4, "choose": "last", "list_size": 2, "topics": {"clusters": 2}}
DISTIL = {"loss": "margin_mse", "weight": 1.0, "supervision": 0.0}


@pytest.fixture(scope="module")
def topics(make_job, dataset, tmp_path_factory):
    """The training queries in two topics, in turn."""
    job = make_job(
        "topics", tmp_path_factory.mktemp("topics") / "t-0123456789", {"clusters": 2, "seed": 1}
    )
    queries = list(Collection(dataset).queries("train"))
    with writing(job) as draft:
        topic = pa.array(np.arange(len(queries)) % 2, pa.int32())
        pq.write_table(
            pa.table({"query_id": queries, "topic": topic}), draft.path("topics.parquet")
        )
    return open_artifact(job.out)


@pytest.fixture(scope="module")
def scores(make_job, dataset, tokens, cross_model, lists, tmp_path_factory):
    """A cross-encoder's scores of the lists."""
    inputs = {
        "dataset": dataset,
        "candidates": lists,
        "judge.0": cross_model,
        "judge_tokens.0": tokens,
    }
    params = {"precision": "fp32", "batch_tokens": 256}
    job = make_job("teacher", tmp_path_factory.mktemp("teacher") / "ce-0123456789", params, inputs)
    load(KINDS["teacher"].run)(job)
    return open_artifact(job.out)


def test_queries_of_other_splits_have_no_topic(model_job, dataset, topics, tmp_path):
    collection = Collection(dataset)
    job = model_job("dual", tmp_path / "m-0123456789", TRAIN, more={"topics": topics})
    rows = index_queries(collection)
    row_topics = find_arrangement(job, rows).topics
    train, dev = (rows.rows(list(collection.queries(split))) for split in ("train", "dev"))
    assert row_topics[train].tolist() == (np.arange(len(train)) % 2).tolist()
    assert set(row_topics[dev].tolist()) == {-1}
    assert find_arrangement(model_job("dual", tmp_path / "n-0123456789"), rows) is None


def test_what_is_learned_depends_on_topics_and_bins_alone(model_job, topics, scores, tmp_path):
    def content(name, train, more):
        job = model_job("dual", tmp_path / f"{name}-0123456789", TRAIN | train, more=more)
        run(job)
        return open_artifact(job.out).manifest.content

    both = {"topics": topics, "teacher": scores}
    whole = content("a", {"distil": DISTIL, "margin_bins": 4}, both)
    assert content("b", {"distil": DISTIL, "margin_bins": 4}, both) == whole
    assert content("c", {"distil": DISTIL}, both) != whole
    assert (
        content("d", {"distil": DISTIL, "margin_bins": 4, "topics": None}, {"teacher": scores})
        != whole
    )
