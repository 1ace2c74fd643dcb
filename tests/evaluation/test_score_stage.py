"""The stage `score` on a run of a few lines."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.data import tables
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.evaluation.scores import read_aligned, read_score_summary, read_scores, run
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

RUN = [("q2", ["d1", "d2"], [5, 5]), ("q1", ["d3"], [2]), ("other", ["d1"], [1])]


@pytest.fixture
def inputs(tmp_path):
    def dataset(draft):
        names, splits = ["q1", "q2", "q3", "q4", "other", "train-1"], ["test"] * 5 + ["train"]
        columns = {"query_id": names, "text": ["t"] * 6, "split": splits}
        pq.write_table(pa.table(columns), draft.path("queries.parquet"))
        docs = ["d1", "d2", "d3", "a", "x", "q1", "q3"]
        pq.write_table(
            pa.table({"doc_id": docs, "title": [""] * 7, "text": docs}),
            draft.path("corpus.parquet"),
        )
        judged = [
            ("q1", "d3", 1),
            ("q2", "d2", 2),
            ("q2", "d9", 1),
            ("q3", "d1", 1),
            ("q4", "d1", 0),
        ]
        queries, docs, grades = zip(*judged, strict=True)
        columns = {
            "query_id": queries,
            "doc_id": docs,
            "relevance": pa.array(grades, pa.int32()),
            "split": ["test"] * 5,
        }
        pq.write_table(pa.table(columns), draft.path("qrels.parquet"))

    def both(lists=RUN, **params):
        toy = Job("dataset", tmp_path / "dataset" / "toy-0123456789", {}, {})
        with writing(toy) as draft:
            dataset(draft)
        sources = {"dataset": open_artifact(toy.out)}
        ranked = Job("bm25", tmp_path / "bm25" / "bm25-0123456789", params, sources)
        with writing(ranked) as draft:
            write_run(ranked, draft, lists)
        return {**sources, "run": open_artifact(ranked.out)}

    return both


@pytest.fixture
def make_input(tmp_path):
    """`make_input(file, schema, rows)`: an artifact of one Parquet file, for the inputs `labels` and `subset`."""

    def build(file, schema, rows):
        out = Job("dataset", tmp_path / "given" / f"{file}-0123456789", {}, {})
        with writing(out) as draft:
            tables.write_batches(draft.path(file), tables.make_batches(rows, schema), schema)
        return open_artifact(out.out)

    return build


def job(tmp_path, inputs, name="a", measures=("RR@10", "R@50"), split="test", **params):
    settings = {"measures": list(measures), "split": split, **params}
    return Job("score", tmp_path / "score" / f"{name}-0123456789", settings, inputs)


def test_values_statistics_and_order(tmp_path, inputs):
    run(job(tmp_path, inputs()))
    artifact = open_artifact(tmp_path / "score/a-0123456789", "score")
    rows = pq.read_table(artifact.path("scores.parquet")).to_pylist()
    # q2: d1 and d2 are tied, so d2 is second; d9 is not found. q3 is not in the run, q4 has nothing relevant.
    expected = [("q1", 1.0, 1.0), ("q2", 0.5, 0.5), ("q3", 0.0, 0.0)]
    assert [tuple(row.values()) for row in rows] == [
        (query, measure, value)
        for query, *values in expected
        for measure, value in zip(["RR@10", "R@50"], values, strict=True)
    ]
    assert read_score_summary(artifact).model_dump() == {
        "mean": {"RR@10": 0.5, "R@50": 0.5},
        "queries": 3,
        "missing": 1,
    }
    assert (artifact.manifest.facts["queries"], artifact.manifest.facts["relevance"]) == (
        3,
        "qrels",
    )
    queries, values = read_scores(artifact, ["R@50"])
    assert (queries, values.tolist()) == (["q1", "q2", "q3"], [[1.0], [0.5], [0.0]])


def test_same_bytes_twice(tmp_path, inputs):
    sources = inputs()
    for name in "ab":
        run(job(tmp_path, sources, name))
    files = [open_artifact(tmp_path / f"score/{name}-0123456789").manifest.files for name in "ab"]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("lists", "options", "message"),
    [
        (RUN, {"measures": ["nope@3"]}, "nope@3 is not a measure"),
        (RUN, {"split": "dev"}, "is a run of split test, but split is dev"),
        ([("train-1", ["d1"], [1])], {}, "holds no query of split test"),
    ],
)
def test_mistakes_leave_nothing_behind(tmp_path, inputs, lists, options, message):
    with pytest.raises(UserError, match=message):
        run(job(tmp_path, inputs(lists), **options))
    assert not (tmp_path / "score").exists()


@pytest.mark.parametrize(
    "lists", [[], [("other", ["d1"], [1])]], ids=["no result at all", "of a query without labels"]
)
def test_a_system_without_a_result_counts_as_0_and_is_warned_of(tmp_path, inputs, lists):
    run(job(tmp_path, inputs(lists)))
    artifact = open_artifact(tmp_path / "score/a-0123456789")
    assert read_scores(artifact, ["RR@10"])[1].tolist() == [[0.0]] * 3
    assert artifact.manifest.facts["warnings"] == [
        "none of the 3 queries has a result: every value is 0"
    ]


def test_no_result_where_passages_are_excluded(tmp_path, inputs):
    run(job(tmp_path, inputs([]), ignore_identical_ids=True))
    assert read_score_summary(open_artifact(tmp_path / "score/a-0123456789")).mean["RR@10"] == 0


def test_a_run_of_another_split_is_refused(tmp_path, inputs):
    with pytest.raises(UserError, match="is a run of split dev, but split is test"):
        run(job(tmp_path, inputs(split="dev")))


def test_reading_what_was_not_computed_or_does_not_fit(tmp_path, inputs):
    run(job(tmp_path, inputs()))
    artifact = open_artifact(tmp_path / "score/a-0123456789")
    with pytest.raises(UserError, match="holds no AP; it holds RR@10, R@50"):
        read_scores(artifact, ["AP"])
    other = tmp_path / "score/b-0123456789"
    with writing(Job("score", other, {"measures": ["RR@10"], "split": "test"}, {})) as draft:
        columns = {"query_id": ["q7"], "measure": ["RR@10"], "value": [1.0]}
        pq.write_table(pa.table(columns), draft.path("scores.parquet"))
        draft.path("statistics.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match="systems are compared on the same dataset"):
        read_aligned([artifact, open_artifact(other)], ["RR@10"])


def test_results_with_the_query_s_own_id_are_dropped_before_ranking(tmp_path, inputs):
    # q1 finds itself first; q3 finds only itself, so that nothing is left of its results.
    sources = inputs([("q1", ["q1", "d3"], [9, 2]), ("q2", ["d2"], [5]), ("q3", ["q3"], [1])])
    values, missing = {}, {}
    for name, params in {
        "as-is": {},
        "off": {"ignore_identical_ids": False},
        "on": {"ignore_identical_ids": True},
    }.items():
        run(job(tmp_path, sources, name, measures=["RR@10"], **params))
        artifact = open_artifact(tmp_path / f"score/{name}-0123456789")
        queries, column = read_scores(artifact, ["RR@10"])
        values[name] = dict(zip(queries, column[:, 0].tolist(), strict=True))
        missing[name] = read_score_summary(artifact).missing
    assert values["as-is"] == values["off"] == {"q1": 0.5, "q2": 1, "q3": 0}
    assert values["on"] == {"q1": 1, "q2": 1, "q3": 0}
    assert missing == {"as-is": 0, "off": 0, "on": 1}


def test_labels_replace_the_qrels_of_the_split(tmp_path, inputs, make_input):
    # Corrected: q2's d1 is relevant after all, q4 has a relevant passage now, q1 and q3 have none.
    rows = [
        ("q2", "d1", 1, "test"),
        ("q2", "d2", 1, "test"),
        ("q4", "d1", 1, "test"),
        ("q3", "d1", 0, "test"),
    ]
    labels = make_input("qrels.parquet", tables.QRELS_SCHEMA, [*rows, ("q1", "d3", 1, "dev")])
    run(job(tmp_path, inputs() | {"labels": labels}))
    artifact = open_artifact(tmp_path / "score/a-0123456789")
    queries, values = read_scores(artifact, ["RR@10", "R@50"])
    assert (queries, values.tolist()) == (["q2", "q4"], [[1, 1], [0, 0]])
    assert artifact.manifest.facts["relevance"] == "labels"


def test_a_subset_leaves_the_queries_it_names_for_the_split(tmp_path, inputs, make_input):
    named = [("q3", "", "test"), ("q1", "", "test"), ("q2", "", "train"), ("stranger", "", "test")]
    subset = make_input("queries.parquet", tables.QUERIES_SCHEMA, named)
    run(job(tmp_path, inputs() | {"subset": subset}))
    artifact = open_artifact(tmp_path / "score/a-0123456789")
    assert read_scores(artifact, ["RR@10"])[0] == ["q1", "q3"]
    assert read_score_summary(artifact).model_dump() == {
        "mean": {"RR@10": 0.5, "R@50": 0.5},
        "queries": 2,
        "missing": 1,
    }


def test_others_are_the_queries_that_are_not_named(tmp_path, inputs, make_input):
    named = [("q3", "", "test"), ("q2", "", "train"), ("stranger", "", "test")]
    run(
        job(
            tmp_path,
            inputs() | {"others": make_input("queries.parquet", tables.QUERIES_SCHEMA, named)},
        )
    )
    assert read_scores(open_artifact(tmp_path / "score/a-0123456789"), ["RR@10"])[0] == ["q1", "q2"]


@pytest.mark.parametrize(
    ("role", "file", "schema", "rows", "message"),
    [
        (
            "labels",
            "qrels.parquet",
            tables.QRELS_SCHEMA,
            [("q9", "d1", 1, "test")],
            "labels 1 queries .* the first q9",
        ),
        (
            "labels",
            "qrels.parquet",
            tables.QRELS_SCHEMA,
            [("q1", "d1", 1, "dev")],
            "holds no split test; it holds dev",
        ),
        (
            "labels",
            "qrels.parquet",
            tables.QRELS_SCHEMA,
            [("q1", "d1", 0, "test")],
            "has no relevant judgement",
        ),
        (
            "subset",
            "queries.parquet",
            tables.QUERIES_SCHEMA,
            [("q4", "", "test")],
            "names none of the 3 queries of",
        ),
        (
            "others",
            "queries.parquet",
            tables.QUERIES_SCHEMA,
            [(f"q{at}", "", "test") for at in (1, 2, 3)],
            "names all of the 3 queries of",
        ),
    ],
)
def test_labels_and_subsets_that_do_not_fit(
    tmp_path, inputs, make_input, role, file, schema, rows, message
):
    with pytest.raises(UserError, match=message) as error:
        run(job(tmp_path, inputs() | {role: make_input(file, schema, rows)}))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "score").exists()


def test_a_run_that_excluded_passages_leave_too_short_is_said(tmp_path, inputs, make_input):
    rows = [
        ("q1", "a", 1, "test"),
        ("q1", "x", -100, "test"),
        ("q2", "a", 1, "test"),
        ("q3", "a", 1, "test"),
    ]
    labels = make_input("qrels.parquet", tables.QRELS_SCHEMA, rows)
    # q1 keeps a alone of its two; q3 has one result since no other was found
    lists = [("q1", ["x", "a"], [2, 1]), ("q2", ["x", "a"], [2, 1]), ("q3", ["a"], [1])]
    run(job(tmp_path, inputs(lists) | {"labels": labels}))
    artifact = open_artifact(tmp_path / "score/a-0123456789")
    assert read_scores(artifact, ["RR@10"])[1].ravel().tolist() == [1, 0.5, 1]
    (line,) = artifact.manifest.facts["warnings"]
    assert line == (
        "1 of 3 queries keep fewer results than the measures look at, since judgements exclude the others; raise depth"
    )


def test_a_run_that_leaving_out_the_own_id_makes_too_short_is_said(tmp_path, inputs):
    # q1 keeps a alone of its two; q3 has one result since no other was found
    lists = [("q1", ["q1", "a"], [2, 1]), ("q2", ["d1", "a"], [2, 1]), ("q3", ["q3"], [1])]
    run(job(tmp_path, inputs(lists), ignore_identical_ids=True))
    (line,) = open_artifact(tmp_path / "score/a-0123456789").manifest.facts["warnings"][1:]
    assert line.startswith("1 of 3 queries keep fewer results than the measures look at")
