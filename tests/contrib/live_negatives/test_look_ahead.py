"""Look-ahead negatives: vectors of positives for queries', what a search with them finds, what they go with."""

import numpy as np
import pytest

from tandem import ROOT
from tandem.contrib.live_negatives.look_ahead import find_first_positives, run
from tandem.data.collection import Collection
from tandem.data.rows import index_passages
from tandem.data.runs import iter_run
from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.encode import run as encode
from tandem.retrieval.retrieve import run as retrieve
from tandem.store.artifact import open_artifact

ENCODE = {"side": "passages", "split": None, "precision": "fp32", "batch_tokens": 256, "block": 7}


@pytest.fixture
def vectors(make_job, dataset, tokens, make_model, tmp_path):
    """`vectors(dtype)`: the passages' vectors and those of the training queries' positives, and what both are of."""

    def make(dtype):
        model = make_model(tmp_path / "de-0000000051", ("dual",), seed=4, shared=True)
        both = {"dataset": dataset, "model": model, "tokens": tokens}
        job = make_job(
            "embeddings", tmp_path / "tiny" / "p-0000000052", ENCODE | {"dtype": dtype}, both
        )
        encode(job)
        inputs = both | {"passages": open_artifact(job.out)}
        positives = make_job(
            "positive_vectors", tmp_path / "tiny" / "q-0000000053", {"split": "train"}, inputs
        )
        run(positives)
        return inputs, open_artifact(positives.out)

    return make


@pytest.mark.parametrize(
    ("dtype", "stored"), [("fp16", "float16"), ("fp32", "float32"), ("int8", "float16")]
)
def test_a_query_has_its_positives_vector(dtype, stored, vectors, dataset):
    inputs, queries = vectors(dtype)
    opened, passages = Embeddings(queries, "queries"), Embeddings(inputs["passages"], "passages")
    collection = Collection(dataset)
    qrels = collection.qrels("train")
    assert opened.read_query_ids() == list(collection.queries("train"))
    rows = index_passages(collection).rows(
        [next(iter(qrels[query])) for query in opened.read_query_ids()]
    )
    own = opened.pick(np.arange(20))
    assert str(own.dtype) == stored
    np.testing.assert_array_equal(own, passages.pick(rows).astype(stored))


def test_a_positive_that_the_corpus_lacks_gives_way_to_the_next(make_collection, tmp_path):
    passages = [(f"p{number}", "", "text") for number in range(3)]
    queries = [(f"q{number}", "a query", "train") for number in range(4)]
    qrels = [
        ("q0", "gone", 2, "train"),
        ("q0", "p1", 1, "train"),
        ("q0", "p2", 2, "train"),
        ("q1", "gone", 1, "train"),
        ("q2", "p0", 0, "train"),
        ("q3", "p1", 1, "train"),
        ("q3", "p0", 1, "train"),
    ]
    made = make_collection(tmp_path / "d" / "mini-0123456789", passages, queries, qrels)
    names, rows = find_first_positives(Collection(made), "train")
    assert names == ["q0", "q1", "q3"]
    assert rows.tolist() == [2, -1, 1]


def test_a_search_finds_the_neighbours_of_the_positive(vectors, make_job, dataset, tmp_path):
    inputs, queries = vectors("fp16")
    searched = {"dataset": dataset, "passages": inputs["passages"], "queries": queries}
    job = make_job(
        "retrieve", tmp_path / "tiny" / "r-0000000054", {"depth": 5, "split": "train"}, searched
    )
    retrieve(job)
    passages = Embeddings(inputs["passages"], "passages").pick(np.arange(60)).astype(np.float64)
    ids = Collection(dataset).doc_ids().to_pylist()
    qrels = Collection(dataset).qrels("train")
    for query, docs, scores in iter_run(open_artifact(job.out), dataset):
        own = passages @ passages[ids.index(next(iter(qrels[query])))]
        np.testing.assert_allclose(scores, np.sort(own)[::-1][:5], rtol=1e-5)
        np.testing.assert_allclose([own[ids.index(doc)] for doc in docs], scores, rtol=1e-5)


def test_no_query_with_a_positive_is_refused(vectors, make_job, tmp_path):
    inputs, _ = vectors("fp16")
    with pytest.raises(UserError, match="gone"):
        run(make_job("positive_vectors", tmp_path / "x-0000000055", {"split": "gone"}, inputs))


@pytest.fixture
def planner(configured):
    """`planner(**candidates)`: of the default with a model `tele` on de_bm25neg's negatives and those ahead of it."""

    def make(**candidates):
        lists = {"from": "de_bm25neg", "depth": 20, "negatives": 5, "one_list": True}
        lists["also"] = [{"from": "de_bm25neg", "depth": 20, "negatives": 5, "look_ahead": True}]
        model = {"objective": "dual", "candidates": lists | candidates}
        model["train"] = {"steps": 2, "queries_per_batch": 2, "list_size": 6}
        return Plan(configured() | {"models": {"tele": model}}, ROOT).planner

    return make


def test_shares_of_several_runs_are_one_list(planner):
    stage = planner().model("tele", "here")
    assert stage.values["one_list"] is True
    own, ahead = (
        stage.upstream["candidates"].upstream["run"],
        stage.upstream["candidates.1"].upstream["run"],
    )
    assert own.upstream["passages"] is ahead.upstream["passages"]
    assert (own.upstream["queries"].kind, ahead.upstream["queries"].kind) == (
        "embeddings",
        "positive_vectors",
    )
    assert ahead.upstream["queries"].upstream["passages"] is ahead.upstream["passages"]


@pytest.mark.parametrize(
    ("candidates", "line"),
    [
        ({"also": []}, "candidates.one_list joins a query's lists, but there is one"),
        (
            {"also": [{"from": "bm25", "one_list": True}]},
            "candidates.also: one_list is of candidates itself",
        ),
        ({"look_ahead": True, "from": "bm25"}, "bm25 is not a model"),
        ({"look_ahead": True, "labels": "answers"}, "look_ahead: labels is answers"),
        (
            {"look_ahead": True, "below_positive": {"margin": 1.0}},
            "scores of look_ahead are of positives, not queries",
        ),
        (
            {"look_ahead": True, "behind": {"than": "bm25", "depth": 5}},
            "candidates.behind: look_ahead ranks no passage for a query",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(planner, candidates, line):
    with pytest.raises(UserError) as error:
        planner(**candidates).model("tele", "here")
    assert line in str(error.value)
