"""The stage `match` on a run of a few lines, by two processes, and on a real collection; and scores by its matches."""

import json
import random

import numpy as np
import pyarrow.parquet as pq
import pytest

from tandem.contrib.answers import matching
from tandem.contrib.answers.matching import run
from tandem.data import tables
from tandem.data.runs import write_run
from tandem.errors import UserError
from tandem.evaluation import scores as score
from tandem.evaluation.scores import read_score_summary, read_scores
from tandem.extras.absent_lines import write_whole_run
from tandem.store.artifact import open_artifact
from tandem.store.job import Job, writing

PASSAGES = [
    ("d1", "Whale", "The blue whale eats krill."),
    ("d2", "Krill", "Small and red."),
    ("d3", "", "A KRILL (euphausiid) swims in 1973."),
    ("d4", "Otter", "It eats crabs"),
    ("d5", "Owl", "not retrieved: krill"),
]
ANSWERS = {
    "q1": ["krill"],
    "q2": ["crabs", "1973"],
    "q3": ["nothing here"],
    "q4": ["", " "],
    "q5": ["owl"],
    "dev1": ["krill"],
}
RUN = {  # q3's d3 and d2 are tied: d2 comes first; q0 has no answers; q5 is not in the run
    "q2": [("d1", 3), ("d3", 2), ("d4", 1)],
    "q0": [("d1", 1)],
    "q1": [("d2", 9), ("d1", 8), ("d3", 7), ("d4", 6)],
    "q3": [("d3", 2), ("d2", 2)],
    "q4": [("d1", 1)],
}


@pytest.fixture
def make(tmp_path):
    """`make(kind, files, params, upstream)`: an artifact of Parquet rows by schema, or a run."""

    def build(kind, files, params=None, inputs=None, name="a"):
        job = Job(kind, tmp_path / kind / f"{name}-0123456789", params or {}, inputs or {})
        with writing(job) as draft:
            for file, rows in files.items():
                if file == "run":
                    write_run(
                        job,
                        draft,
                        [(query, *zip(*ranked, strict=True)) for query, ranked in rows.items()],
                    )
                else:
                    schema = getattr(tables, f"{file.split('.')[0].upper()}_SCHEMA")
                    tables.write_batches(
                        draft.path(file), tables.make_batches(rows, schema), schema
                    )
        return open_artifact(job.out)

    return build


@pytest.fixture
def toy(make):
    """The inputs of the toy: five passages, six questions of which one is dev's, a run of test."""

    def inputs(answers=ANSWERS, ranked=RUN, passages=PASSAGES, **params):
        ids = dict.fromkeys(["q0", *answers, *RUN])
        queries = [(query, "?", "dev" if query.startswith("dev") else "test") for query in ids]
        files = {
            "corpus.parquet": passages,
            "queries.parquet": queries,
            "answers.parquet": list(answers.items()),
        }
        dataset = make("dataset", files | {"qrels.parquet": []})
        ran = make("bm25", {"run": ranked}, {"split": "test", **params}, {"dataset": dataset})
        return {"dataset": dataset, "run": ran}

    return inputs


@pytest.fixture
def matched(tmp_path):
    def match(inputs, name="m", workers=1, **params):
        settings = {"split": "test", "match": "string", "depth": 3, "title": False} | params
        run(
            Job(
                "match",
                tmp_path / "match" / f"{name}-0123456789",
                settings,
                inputs,
                {"workers": workers},
            )
        )
        return open_artifact(tmp_path / "match" / f"{name}-0123456789", "match")

    return match


def rows(artifact):
    return [
        tuple(row.values()) for row in pq.read_table(artifact.path("matches.parquet")).to_pylist()
    ]


def test_matches_in_the_order_of_the_run(toy, matched):
    artifact = matched(toy())
    assert rows(artifact) == [
        ("q2", "d1", 1, False),
        ("q2", "d3", 2, True),
        ("q2", "d4", 3, True),
        ("q1", "d2", 1, False),
        ("q1", "d1", 2, True),
        ("q1", "d3", 3, True),
        ("q3", "d2", 1, False),
        ("q3", "d3", 2, False),
        ("q4", "d1", 1, False),
    ]
    facts = artifact.manifest.facts
    assert (facts["questions"], facts["pairs"], facts["passages"], facts["missing"]) == (5, 9, 4, 1)
    assert (facts["broken_patterns"], facts["empty_answers"], facts["timeouts"]) == (0, 2, 0)
    assert facts["success"] == {"1": 0.0}


def test_the_share_of_questions_with_a_hit_counts_all_of_them(toy, matched):
    assert matched(toy(), depth=20).manifest.facts["success"] == {
        "1": 0,
        "5": 2 / 5,
        "10": 2 / 5,
        "20": 2 / 5,
    }


def test_titles_count_only_when_told(toy, matched):
    inputs = toy(answers={"q1": ["krill . small"]})
    assert [row for row in rows(matched(inputs)) if row[3]] == []
    assert [row for row in rows(matched(inputs, "t", title=True)) if row[3]] == [
        ("q1", "d2", 1, True)
    ]


def test_patterns_and_kilt(toy, matched):
    inputs = toy(answers={"q1": ["(", r"^the .*\bkrill\."], "q2": ["19[67]3"]})
    artifact = matched(inputs, match="regex")
    assert [row[:2] for row in rows(artifact) if row[3]] == [("q2", "d3"), ("q1", "d1")]
    assert artifact.manifest.facts["broken_patterns"] == 1
    part = toy(answers={"q1": ["rill eu"]})
    assert [row[1] for row in rows(matched(part, "k", match="kilt")) if row[3]] == ["d3"]


def test_a_hanging_pattern_is_counted_and_the_rest_is_done(toy, matched, monkeypatch):
    monkeypatch.setattr("tandem.extras.answer_rules.PATTERN_SECONDS", 0.02)
    inputs = toy(
        answers={"q1": ["(a|aa)+$"], "q2": ["crabs"]},
        passages=[("d1", "", "a" * 90 + "b"), *PASSAGES[1:]],
    )
    artifact = matched(inputs, match="regex")
    assert ([row[:2] for row in rows(artifact) if row[3]], artifact.manifest.facts["timeouts"]) == (
        [("q2", "d4")],
        1,
    )


def test_one_and_two_processes_give_the_same_bytes(toy, matched, monkeypatch):
    monkeypatch.setattr(matching, "PASSAGES_PER_BLOCK", 10)
    draw = random.Random(5)
    names = ["fox", "owl", "bee", "elk", "ant", "cod"]
    passages = [(f"d{n}", "", " ".join(draw.choices(names, k=5))) for n in range(300)]
    answers = {f"q{n}": [" ".join(draw.choices(names, k=2)), "("] for n in range(40)}
    ranked = {
        q: [(f"d{n}", 50 - at) for at, n in enumerate(draw.sample(range(300), 50))] for q in answers
    }
    inputs = toy(answers, ranked, passages)
    artifacts = [
        matched(inputs, f"{rule}{n}", n, depth=30, match=rule)
        for rule in ("string", "regex")
        for n in (1, 2)
    ]
    files = [artifact.manifest.files for artifact in artifacts]
    assert files[0] == files[1]
    assert files[2] == files[3]
    texts = {doc: text for doc, _, text in passages}
    for doc, query, rank, relevant in (
        (row[1], row[0], row[2], row[3]) for row in rows(artifacts[1])
    ):
        assert relevant == (f" {answers[query][0]} " in f" {texts[doc]} ")
        assert ranked[query][rank - 1][0] == doc
    assert [artifact.manifest.facts["broken_patterns"] for artifact in artifacts] == [0, 0, 40, 40]
    assert artifacts[0].manifest.facts["success"] == artifacts[1].manifest.facts["success"]


@pytest.mark.parametrize(
    ("options", "params", "message"),
    [
        ({}, {"match": "fuzzy"}, "allowed: string, regex, kilt"),
        ({"split": "dev"}, {}, "is a run of split dev, but split is test"),
        ({"ranked": {"dev1": [("d1", 1)]}}, {}, "holds no query of split test"),
        ({"answers": {"dev1": ["x"]}}, {}, "no query of split test has answers"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(toy, matched, tmp_path, options, params, message):
    with pytest.raises(UserError, match=message) as error:
        matched(toy(**options), **params)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "match").exists()


# Scores by matches


def scored(tmp_path, inputs, measures, **params):
    settings = {"measures": measures, "split": "test", **params}
    score.run(Job("score", tmp_path / "score" / "s-0123456789", settings, inputs))
    return open_artifact(tmp_path / "score" / "s-0123456789")


def test_scores_by_matches(toy, matched, tmp_path):
    inputs = toy()
    artifact = scored(
        tmp_path, inputs | {"match": matched(inputs)}, ["Success@1", "Success@3", "RR@3", "P@3"]
    )
    queries, values = read_scores(artifact, ["Success@1", "Success@3", "RR@3", "P@3"])
    expected = {
        "q1": [0, 1, 1 / 2, 2 / 3],
        "q2": [0, 1, 1 / 2, 2 / 3],
        "q3": [0] * 4,
        "q4": [0] * 4,
        "q5": [0] * 4,
    }
    assert queries == list(expected)
    assert values.tolist() == [pytest.approx(row) for row in expected.values()]
    summary = read_score_summary(artifact).model_dump()
    assert summary["mean"] == pytest.approx(
        {"Success@1": 0, "Success@3": 0.4, "RR@3": 0.2, "P@3": 4 / 15}
    )
    assert (summary["queries"], summary["missing"], artifact.manifest.facts["relevance"]) == (
        5,
        1,
        "match",
    )


@pytest.mark.parametrize(
    "ranked", [{}, {"q0": [("d1", 1)]}], ids=["nothing at all", "for a question without answers"]
)
def test_a_system_that_finds_nothing_is_worth_0_and_warned_of(toy, matched, tmp_path, ranked):
    inputs = toy(ranked=ranked)
    match = matched(inputs)
    assert rows(match) == []
    assert match.manifest.facts["success"] == {"1": 0}
    artifact = scored(tmp_path, inputs | {"match": match}, ["RR@3"])
    assert read_scores(artifact, ["RR@3"])[1].tolist() == [[0.0]] * 5
    assert artifact.manifest.facts["warnings"] == [
        "none of the 5 queries has a result: every value is 0"
    ]


def test_a_subset_of_matched_questions(toy, matched, make, tmp_path):
    inputs = toy()
    some = make(
        "dataset",
        {"queries.parquet": [("q5", "", "test"), ("q2", "", "test"), ("q1", "", "dev")]},
        name="some",
    )
    artifact = scored(tmp_path, inputs | {"match": matched(inputs), "subset": some}, ["RR@3"])
    queries, values = read_scores(artifact, ["RR@3"])
    assert (queries, values.tolist()) == (["q2", "q5"], [[0.5], [0]])


@pytest.mark.parametrize(
    ("measure", "params", "message"),
    [
        ("R@3", {}, r"R@3 cannot be computed from matches: .* allowed: Success@k, RR@k, P@k"),
        ("nDCG@3", {}, "cannot be computed from matches"),
        ("AP", {}, "cannot be computed from matches"),
        ("RR", {}, "cannot be computed from matches"),
        ("P(rel=2)@3", {}, "cannot be computed from matches"),
        (
            "Success@5",
            {},
            "looks deeper than the 3 passages per query that were matched; raise the depth",
        ),
        ("RR@3", {"ignore_identical_ids": True}, "ignore_identical_ids and match are both set"),
    ],
)
def test_what_matches_cannot_give_is_refused(toy, matched, tmp_path, measure, params, message):
    inputs = toy()
    with pytest.raises(UserError, match=message) as error:
        scored(tmp_path, inputs | {"match": matched(inputs)}, [measure], **params)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "score").exists()


def test_matches_of_another_run_are_refused(toy, matched, make, tmp_path):
    inputs = toy()
    other = make(
        "bm25", {"run": RUN}, {"split": "test"}, {"dataset": inputs["dataset"]}, name="other"
    )
    with pytest.raises(
        UserError, match=r"matched a-0123456789 on split test, but scored is other-0123456789"
    ):
        scored(tmp_path, {**inputs, "match": matched(inputs), "run": other}, ["RR@3"])
    labels = make("dataset", {"qrels.parquet": [("q1", "d1", 1, "test")]}, name="labels")
    with pytest.raises(UserError, match="labels and match are both inputs"):
        scored(tmp_path, {**inputs, "match": matched(inputs), "labels": labels}, ["RR@3"])


def test_squad_by_qrels_and_by_answers(make, matched, real, tmp_path):
    """A run with the gold paragraph at rank 2, behind another one where an answer stands only by chance."""
    folder = real("squad")

    def read(name):
        with open(folder / name, encoding="utf-8", newline="\n") as file:
            return [json.loads(line) for line in file]

    gold = [
        line.split("\t")[:2] for line in (folder / "qrels/test.tsv").read_text().splitlines()[1:]
    ]
    passages = [
        (record["_id"], record.get("title", ""), record["text"]) for record in read("corpus.jsonl")
    ]
    answers = [(record["_id"], record["answers"]) for record in read("answers.jsonl")]
    files = {
        "corpus.parquet": passages,
        "queries.parquet": [(query, "?", "test") for query, _ in gold],
        "qrels.parquet": [(query, doc, 1, "test") for query, doc in gold],
        "answers.parquet": answers,
    }
    first = {query: passages[at % len(passages)][0] for at, (query, _) in enumerate(gold)}
    ranked = {query: [(first[query], 2), (doc, 1)] for query, doc in gold if first[query] != doc}
    inputs = {"dataset": make("dataset", files)}
    inputs["run"] = make("bm25", {"run": ranked}, {"split": "test"}, dict(inputs))
    artifact = matched(inputs, depth=5)
    assert artifact.manifest.facts["questions"] == 2834
    second = [row[3] for row in rows(artifact) if row[2] == 2]
    assert (len(second), all(second)) == (len(ranked), True)
    means = read_score_summary(
        scored(tmp_path, inputs | {"match": artifact}, ["Success@1", "Success@5"])
    ).mean
    by_hand = sum(row[3] for row in rows(artifact) if row[2] == 1) / 2834
    assert means["Success@1"] == artifact.manifest.facts["success"]["1"] == pytest.approx(by_hand)
    assert (
        means["Success@5"]
        == artifact.manifest.facts["success"]["5"]
        == pytest.approx(len(ranked) / 2834)
    )
    assert 0 < means["Success@1"] < 0.2


def test_lines_of_passages_that_the_corpus_lacks_keep_their_ranks(make, toy, tmp_path):
    inputs = toy()
    released = Job(
        "imported", tmp_path / "imported", {"split": "test"}, {"dataset": inputs["dataset"]}
    )
    with writing(released) as draft:
        write_whole_run(released, draft, [("q1", ["absent", "d1"], np.float32([9, 8]))])
    params = {"split": "test", "match": "string", "depth": 5, "title": False}
    inputs = {"dataset": inputs["dataset"], "run": open_artifact(released.out)}
    run(Job("match", tmp_path / "match", params, inputs))
    matches = open_artifact(tmp_path / "match")
    lines = pq.read_table(matches.path("matches.parquet")).to_pylist()
    assert [(line["doc_id"], line["rank"]) for line in lines if line["relevant"]] == [("d1", 2)]
    assert matches.manifest.facts["success"] == {"1": 0.0, "5": 0.2}
    measured = {"split": "test", "measures": ["Success@1", "Success@5"]}
    score.run(Job("score", tmp_path / "score", measured, {**inputs, "match": matches}))
    means = read_score_summary(open_artifact(tmp_path / "score")).mean
    assert means == {"Success@1": 0.0, "Success@5": 0.2}
