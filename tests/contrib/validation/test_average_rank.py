"""The average rank of the relevant passage, by hand and against the run of all passages."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trec import iter_trec

from tandem.contrib.validation.average_rank import run
from tandem.data.collection import EXCLUDED, Collection
from tandem.retrieval.embeddings import name_block
from tandem.store.artifact import open_artifact
from tandem.store.files import write_json
from tandem.store.job import writing


@pytest.fixture
def embedded(make_job, tmp_path):
    """`embedded(dataset, side, vectors, ids, block)`: an embeddings artifact of given vectors."""

    def make(dataset, side, vectors, ids=None, block=3):
        role = "model", "tokens"
        inputs = {"dataset": dataset}
        params = {"side": side, "split": "dev"}
        job = make_job("embeddings", tmp_path / "embeddings" / f"{side}-0000000000", params, inputs)
        rows, dim = vectors.shape
        with writing(job) as draft:
            for number, start in enumerate(range(0, rows, block)):
                np.save(
                    draft.path(name_block(number)),
                    vectors[start : start + block].astype(np.float16),
                )
            meta = {
                "rows": rows,
                "dimension": dim,
                "block": block,
                "temperature": 0.5,
                "dtype": "fp16",
            }
            write_json(draft.path("meta.json"), meta)
            if ids:
                pq.write_table(pa.table({"query_id": ids}), draft.path("ids.parquet"))
        manifest = json.loads((job.out / "stage.json").read_text())
        manifest["upstream"] |= {name: f"results/{name}/x-0000000000" for name in role}
        write_json(job.out / "stage.json", manifest)
        return open_artifact(job.out)

    return make


@pytest.fixture
def ranked(make_job, embedded, tmp_path):
    """`ranked(dataset, passages, queries, ids)`: rank per query, and the artifact."""

    def make(dataset, passages, queries, ids, **params):
        sides = {
            "passages": embedded(dataset, "passages", passages),
            "queries": embedded(dataset, "queries", queries, ids),
        }
        out = tmp_path / "average_rank" / "x-0000000000"
        job = make_job(
            "average_rank", out, {"split": "dev", **params}, {"dataset": dataset} | sides
        )
        run(job)
        table = pq.read_table(job.out / "scores.parquet")
        assert set(table["measure"].to_pylist()) == {"average rank"}
        return (
            dict(zip(table["query_id"].to_pylist(), table["value"].to_pylist(), strict=True)),
            open_artifact(job.out),
            job,
        )

    return make


@pytest.fixture
def collection(make_job, tmp_path):
    """`collection(queries, qrels)`: a dataset of the passages e, c, a, b and d; qrels are (query, passage, grade)."""

    def make(queries, qrels):
        docs, empty = list("ecabd"), [""] * 5
        splits = {"query_id": queries, "text": queries, "split": ["dev"] * len(queries)}
        query, doc, grade = zip(*qrels, strict=True)
        judged = {
            "query_id": query,
            "doc_id": doc,
            "relevance": pa.array(grade, pa.int32()),
            "split": ["dev"] * len(qrels),
        }
        job = make_job(
            "dataset", tmp_path / "dataset" / "five-0000000000", {"source": "written by a test"}
        )
        with writing(job) as draft:
            pq.write_table(
                pa.table({"doc_id": docs, "title": empty, "text": docs}),
                draft.path("corpus.parquet"),
            )
            pq.write_table(pa.table(splits), draft.path("queries.parquet"))
            pq.write_table(pa.table(judged), draft.path("qrels.parquet"))
        return open_artifact(job.out)

    return make


@pytest.fixture
def five(collection):
    """q1 has b and d relevant, q2 has c, q3 one that the corpus lacks."""
    return collection(
        ["q1", "q2", "q3"], [("q1", "b", 1), ("q1", "d", 1), ("q2", "c", 1), ("q3", "z", 1)]
    )


def test_ranks_by_hand(five, ranked):
    # rows e, c, a, b, d; one dimension: the score is the product
    passages = np.array([[5], [2], [2], [1], [4]])
    ranks, artifact, _ = ranked(five, passages, np.array([[1], [1], [1]]), ["q1", "q2", "q3"])
    # q1: e 5, d 4 (relevant), …: 2. q2: e 5, d 4, then a and c tie at 2, a first by its id: 4. q3 does not count.
    assert ranks == {"q1": 2, "q2": 4}
    statistics = json.loads(artifact.path("statistics.json").read_text())
    assert statistics == {"mean": {"average rank": 3.0}, "queries": 2, "missing": 1}
    assert artifact.manifest.facts["queries"] == 2


def test_a_negative_query_turns_the_order(five, ranked):
    passages = np.array([[5], [2], [2], [1], [4]])
    ranks, _, _ = ranked(five, passages, np.array([[-1], [-1], [0]]), ["q1", "q2", "q3"])
    # q1: b first. q2: b, then a before c. All passages tie for q3, which has none.
    assert ranks == {"q1": 1, "q2": 3}


def test_passages_that_judgements_exclude_have_no_rank(collection, ranked):
    dataset = collection(
        ["q1", "q2"], [("q1", "b", 1), ("q1", "e", EXCLUDED), ("q1", "z", EXCLUDED), ("q2", "b", 1)]
    )
    ranks, _, _ = ranked(
        dataset, np.array([[5], [2], [2], [1], [4]]), np.array([[1], [1]]), ["q1", "q2"]
    )
    # e, d, a, c, b by score; of q1, e is left out, and z is not in the corpus
    assert ranks == {"q1": 4, "q2": 5}


def test_where_identical_ids_are_ignored_a_query_is_no_passage_of_itself(collection, ranked):
    dataset = collection(["a", "e"], [("a", "c", 1), ("a", "a", 1), ("e", "b", 1)])
    vectors = np.array([[5], [2], [2], [1], [4]]), np.array([[1], [1]]), ["a", "e"]
    # e, d, a, c, b by score
    assert ranked(dataset, *vectors, ignore_identical_ids=True)[0] == {"a": 3, "e": 4}


def test_ranks_are_places_in_the_run_of_everything(dataset, ranked, make_job, tmp_path):
    from tandem.retrieval.retrieve import run as retrieve

    rng = np.random.default_rng(3)
    collection = Collection(dataset)
    # few values, so that many scores tie or nearly tie
    passages = rng.integers(-2, 3, (60, 8)) / 4 + rng.integers(0, 2, (60, 8)) * 2.0**-10
    queries, ids = rng.integers(-2, 3, (20, 8)) / 3, list(collection.queries("dev"))
    ranks, _, job = ranked(dataset, passages, queries, ids)
    whole = make_job(
        "retrieve",
        tmp_path / "retrieve" / "x-0000000000",
        {"split": "dev", "depth": 60},
        job.inputs,
    )
    retrieve(whole)
    relevant = {query: next(iter(judged)) for query, judged in collection.qrels("dev").items()}
    places = {
        query: docs.index(relevant[query]) + 1
        for query, docs, _ in iter_trec(whole.out / "run.trec")
    }
    assert ranks == places
    assert len(set(places.values())) > 5
