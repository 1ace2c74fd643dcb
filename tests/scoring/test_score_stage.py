"""The stage `score` on a run of a few lines."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.artifact import Job, open_artifact, writing
from tandem.errors import UserError
from tandem.scoring.scores import read_aligned, read_scores, statistics
from tandem.scoring.stage import run

RUN = "q2 Q0 d1 1 5 t\nq2 Q0 d2 2 5 t\nq1 Q0 d3 1 2 t\nother Q0 d1 1 1 t\n"


@pytest.fixture
def inputs(tmp_path):
    def dataset(draft):
        columns = {"query_id": ["q1", "q2", "q3", "q4"], "text": ["t"] * 4, "split": ["test"] * 4}
        pq.write_table(pa.table(columns), draft.path("queries.parquet"))
        pq.write_table(pa.table({"doc_id": ["d1"], "title": [""], "text": ["x"]}), draft.path("corpus.parquet"))
        judged = [("q1", "d3", 1), ("q2", "d2", 2), ("q2", "d9", 1), ("q3", "d1", 1), ("q4", "d1", 0)]
        queries, docs, grades = zip(*judged, strict=True)
        columns = {
            "query_id": queries,
            "doc_id": docs,
            "relevance": pa.array(grades, pa.int32()),
            "split": ["test"] * 5,
        }
        pq.write_table(pa.table(columns), draft.path("qrels.parquet"))

    def make(kind, name, fill, params):
        job = Job(kind, tmp_path / kind / f"{name}-0123456789", params, {})
        with writing(job) as draft:
            fill(draft)
        return open_artifact(job.out)

    def both(lines=RUN, **params):
        ranked = make("bm25", "bm25", lambda draft: draft.path("run.trec").write_text(lines), params)
        return {"dataset": make("dataset", "toy", dataset, {}), "run": ranked}

    return both


def job(tmp_path, inputs, name="a", measures=("RR@10", "R@50"), split="test"):
    return Job("score", tmp_path / "score" / f"{name}-0123456789", {"measures": list(measures), "split": split}, inputs)


def test_values_statistics_and_order(tmp_path, inputs):
    run(job(tmp_path, inputs()))
    made = open_artifact(tmp_path / "score/a-0123456789", "score")
    rows = pq.read_table(made.path("scores.parquet")).to_pylist()
    # q2: d1 and d2 are tied, so d2 is second; d9 is not found. q3 is not in the run, q4 has nothing relevant.
    expected = [("q1", 1.0, 1.0), ("q2", 0.5, 0.5), ("q3", 0.0, 0.0)]
    assert [tuple(row.values()) for row in rows] == [
        (query, measure, value)
        for query, *values in expected
        for measure, value in zip(["RR@10", "R@50"], values, strict=True)
    ]
    assert statistics(made) == {"mean": {"RR@10": 0.5, "R@50": 0.5}, "queries": 3, "ties": 1, "missing": 1}
    assert made.manifest["queries"] == 3
    queries, values = read_scores(made, ["R@50"])
    assert (queries, values.tolist()) == (["q1", "q2", "q3"], [[1.0], [0.5], [0.0]])


def test_same_bytes_twice(tmp_path, inputs):
    given = inputs()
    for name in "ab":
        run(job(tmp_path, given, name))
    files = [open_artifact(tmp_path / f"score/{name}-0123456789").manifest["files"] for name in "ab"]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        (RUN, {"measures": ["nope@3"]}, "nope@3 is not a measure"),
        (RUN, {"split": "dev"}, "no split dev"),
        ("other Q0 d1 1 1 t\n", {}, "holds no query of split test"),
        ("q1 Q0 d1 1\n", {}, "run.trec:1"),
    ],
)
def test_mistakes_leave_nothing_behind(tmp_path, inputs, lines, options, told):
    with pytest.raises(UserError, match=told):
        run(job(tmp_path, inputs(lines), **options))
    assert not (tmp_path / "score").exists()


def test_a_run_of_another_split_is_refused(tmp_path, inputs):
    with pytest.raises(UserError, match="is a run of split dev, but split is test"):
        run(job(tmp_path, inputs(split="dev")))


def test_reading_what_was_not_computed_or_does_not_fit(tmp_path, inputs):
    run(job(tmp_path, inputs()))
    made = open_artifact(tmp_path / "score/a-0123456789")
    with pytest.raises(UserError, match="holds no AP; it holds RR@10, R@50"):
        read_scores(made, ["AP"])
    other = tmp_path / "score/b-0123456789"
    with writing(Job("score", other, {"measures": ["RR@10"], "split": "test"}, {})) as draft:
        columns = {"query_id": ["q7"], "measure": ["RR@10"], "value": [1.0]}
        pq.write_table(pa.table(columns), draft.path("scores.parquet"))
        draft.path("statistics.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match="systems are compared on the same dataset"):
        read_aligned([made, open_artifact(other)], ["RR@10"])
