"""Lists for those queries alone that another run answers at once, and the source further below."""

import json

import numpy as np
import pytest
from listed import listed_rows

from tandem.data.collection import Collection
from tandem.errors import UserError
from tandem.negatives.candidates import run
from tandem.store.artifact import open_artifact

RELEVANT_RANK = 3  # of every train query's passage in `train_run`


@pytest.fixture
def teacher_run(results, write_ranked, dataset):
    """A run that ranks the passage first which every other query asks for."""
    collection = Collection(dataset)
    ranked = []
    for number, (query, judged) in enumerate(collection.qrels("train").items()):
        relevant = next(iter(judged))
        other = next(doc for doc in collection.doc_ids().to_pylist() if doc not in judged)
        first, second = (relevant, other) if number % 2 else (other, relevant)
        ranked.append((query, [first, second], np.array([2.0, 1.0])))
    out = results / "rerank" / "teacher.train-00000000c7"
    return write_ranked("bm25", out, {"depth": 2}, {"dataset": dataset}, ranked)


@pytest.fixture
def draw(make_job, dataset, tokens, train_run, teacher_run, tmp_path):
    """`draw(first_rank, depth)`: the rows of the lists and their report."""

    def make(first_rank, depth):
        params = {"depth": 9, "split": "train", "seed": 1}
        params["behind"] = {"first_rank": first_rank, "depth": depth}
        inputs = {"dataset": dataset, "run": train_run, "tokens": tokens, "ahead": teacher_run}
        job = make_job("candidates", tmp_path / "c-0123456789", params, inputs)
        run(job)
        return listed_rows(open_artifact(job.out)), json.loads(
            (job.out / "report.json").read_text()
        )

    return make


def test_queries_that_the_other_run_answers_and_the_source_does_not_yet(draw, dataset):
    rows, report = draw(2, RELEVANT_RANK)
    answered = list(Collection(dataset).qrels("train"))[1::2]
    assert {row["query_id"] for row in rows} == set(answered)
    assert report["queries"] == report["not_behind"] == len(answered) == 10


@pytest.mark.parametrize(("first_rank", "depth"), [(2, RELEVANT_RANK - 1), (RELEVANT_RANK + 1, 9)])
def test_where_no_query_is_behind_a_line_says_so(draw, first_rank, depth):
    with pytest.raises(
        UserError, match=r"none of 20 queries .* widen the ranks of candidates.behind"
    ):
        draw(first_rank, depth)


def test_judges_are_calibrated_by_dev_which_is_behind_nothing(
    make_job, dataset, tokens, train_run, dev_run, teacher_run, cross_model, tmp_path
):
    """The other run has lists of train alone."""
    params = {
        "depth": 9,
        "split": "train",
        "seed": 1,
        "behind": {"first_rank": 2, "depth": 9},
        "denoise": {"negative_below": 0.9, "positive_above": None, "calibrate": "dev"},
        "precision": "fp32",
        "batch_tokens": 256,
    }
    inputs = {"dataset": dataset, "run": train_run, "calibration": dev_run, "ahead": teacher_run}
    inputs |= {"tokens": tokens, "judge.0": cross_model, "judge_tokens.0": tokens}
    job = make_job("candidates", tmp_path / "c-0123456789", params, inputs)
    run(job)
    assert open_artifact(job.out).manifest.facts["calibration"]["positives"] == 20
    assert json.loads((job.out / "report.json").read_text())["queries"] == 10


def test_neither_run_counts_a_querys_own_passage(
    make_job, make_dataset, make_tokens, write_ranked, documents, tmp_path
):
    """Without it the other run answers both, and the source has one's passage second, the other's first."""
    own = [(query, "", f"about {query}") for query in ("train-owl", "train-bat")]
    data = make_dataset(tmp_path / "r/dataset/own-0000000001", [*own, *documents])

    def write(name, of_owl):
        of_bat = ["train-bat", "bat-3", "otter-1"]
        ranked = [
            (query, docs, np.arange(len(docs), 0.0, -1))
            for query, docs in (("train-owl", of_owl), ("train-bat", of_bat))
        ]
        out = tmp_path / f"r/bm25/{name}"
        return write_ranked("bm25", out, {"depth": 3}, {"dataset": data}, ranked)

    inputs = {
        "dataset": data,
        "run": write("run.train-0000000002", ["train-owl", "otter-1", "owl-3"]),
        "ahead": write("ahead.train-0000000003", ["train-owl", "owl-3"]),
        "tokens": make_tokens(tmp_path / "r/tokens/t-0000000004", data),
    }
    params = {"depth": 3, "split": "train", "seed": 1, "ignore_identical_ids": True}
    params["behind"] = {"first_rank": 2, "depth": 3}
    job = make_job("candidates", tmp_path / "r/candidates/c-0000000005", params, inputs)
    run(job)
    rows = listed_rows(open_artifact(job.out))
    assert {(row["query_id"], row["doc_id"]) for row in rows if not row["label"]} == {
        ("train-owl", "otter-1")
    }
