"""A language model as judge: a server of the test grades a collection that is written by hand."""

import json
import re
from functools import partial

import pyarrow.parquet as pq
import pytest
from llm_server import completion, serving
from tiny_language_models import make_language_model

from tandem.contrib.audits.false_negatives import run as pool_stage
from tandem.contrib.audits.findings import collect_audits, write_audits_csv
from tandem.contrib.audits.llm_judge import run as judge_stage
from tandem.contrib.audits.relabel import run as relabel_stage
from tandem.errors import UserError
from tandem.evaluation.scores import run as score
from tandem.extras.language_models.prompts import GRADE, write_grade_prompt
from tandem.extras.report.page import make_environment
from tandem.store.artifact import open_artifact
from tandem.store.lineage import walk

# A passage's text says how the model grades it.
PASSAGES = [
    (f"p{n}", "", f"passage {n} of grade {grade}")
    for n, grade in enumerate([3, 2, 1, 0, 3, 2], start=1)
]
QUERIES = [("q1", "first", "test"), ("q2", "second", "test")]
QRELS = [
    ("q1", "p1", 1, "test"), ("q1", "p3", 1, "test"), ("q1", "p4", 0, "test"),
    ("q2", "p6", 1, "test"), ("q2", "p2", 0, "test"), ("q2", "gone", 1, "test"),
]  # fmt: skip
RANKED = {"q1": ["p2", "p1", "p3", "p5"], "q2": ["p3", "p6", "p5"]}
UNJUDGED = [("q1", "p2"), ("q1", "p5"), ("q2", "p3"), ("q2", "p5")]
MODEL = "tiny-gpt"


@pytest.fixture
def server():
    with serving() as httpd:
        httpd.respond = lambda body, number: (200, completion(f"Grade: {graded(body)}"))
        yield httpd


def graded(body):
    """The grade that the passage of a question names."""
    return re.search(r"of grade (\d)", body["messages"][0]["content"])[1]


@pytest.fixture
def stage(make_artifact, make_collection, make_run, server, tmp_path):
    """`stage(name, endpoint, **params)`: the artifact of `judge_llm`; `stage.run_stage(…)` runs any other stage."""
    root = tmp_path / "results" / "mini"
    data = make_collection(root / "dataset" / "mini-0123456789", PASSAGES, QUERIES, QRELS)
    run = make_run(root / "bm25" / "bm25.test-0123456789", data, "test", RANKED)

    run_stage = partial(make_artifact, root)
    pool_params = {"split": "test", "depth": 4, "top": 1, "threshold": 0.5}
    pool = run_stage("false_negatives", pool_stage, pool_params, {"dataset": data, "run.0": run})

    def judge(name="judge", endpoint=None, **params):
        own = {"model": MODEL, "url": server.url, "split": "test", "seed": 1, "depth": 4} | params
        inputs = {"dataset": data, "pool": pool, "run.0": run}
        execution = {"endpoint": {"url": server.url, **(endpoint or {})}} if own["url"] else {}
        return run_stage("judge_llm", judge_stage, own, inputs, execution, name)

    judge.run_stage, judge.data, judge.run, judge.pool = run_stage, data, run, pool
    return judge


def rows(artifact, name):
    return pq.read_table(artifact.path(name)).to_pylist()


def test_what_nobody_judged_gets_a_label_that_names_the_model(stage):
    artifact = stage()
    qrels = [tuple(row.values()) for row in rows(artifact, "qrels.parquet")]
    assert qrels[: len(QRELS)] == [(*row, "people") for row in QRELS]
    # p2 has grade 2, p5 grade 3, p3 grade 1: relevant from 2 on
    labels = zip(UNJUDGED, [1, 1, 0, 1], strict=True)
    assert qrels[len(QRELS) :] == [(*pair, label, "test", MODEL) for pair, label in labels]
    facts = artifact.manifest.facts
    # 4 unjudged pairs, and 5 judged ones whose passage is there
    assert (facts["pairs"], facts["asked"], facts["prompt_tokens"], facts["without_grade"]) == (
        9,
        9,
        900,
        0,
    )
    changes = json.loads(artifact.path("changes.json").read_text())
    assert (changes["verdict"], changes["asked_about"], changes["new_positives"]) == (
        "language model",
        4,
        3,
    )


@pytest.fixture
def grader(tmp_path):
    """A tiny Llama that has learned to answer with the grade that a passage names."""
    import torch
    import transformers

    texts, queries = [text for *_, text in PASSAGES], [text for _, text, _ in QUERIES]
    folder = make_language_model(
        tmp_path / "grader", "llama", [GRADE, *texts, *queries], initializer_range=0.1
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompts = [
        f"<|im_start|>{write_grade_prompt(query, text)}<|im_end|><|im_start|>"
        for query in queries
        for text in texts
    ]
    inputs = tokenizer(prompts, return_tensors="pt")["input_ids"]
    answers = torch.tensor(
        tokenizer.convert_tokens_to_ids([text[-1] for text in texts] * len(queries))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        loss = torch.nn.functional.cross_entropy(
            model(inputs, logits_to_keep=1).logits[:, -1], answers
        )
        if loss < 0.1:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return folder


def test_a_model_in_this_process_grades_as_one_behind_a_server(stage, server, grader):
    served = stage("served")
    server.requests.clear()
    local = stage("local", model=str(grader), url=None, precision="fp32", tokens=1)
    grades, expected = (
        [row["grade"] for row in rows(artifact, "grades.parquet")] for artifact in (local, served)
    )
    assert grades == expected
    assert set(grades) == {0, 1, 2, 3}
    assert {row["made_by"] for row in rows(local, "grades.parquet")} == {str(grader)}
    facts = local.manifest.facts
    assert (facts["asked"], facts["answer_tokens"], facts["without_grade"], server.requests) == (
        9,
        9,
        0,
        [],
    )


def test_agreement_with_people(stage):
    summary = json.loads(stage().path("summary.json").read_text())
    # people's 1 for p1, p3, p6 and 0 for p4, p2; the model's grades 3, 1, 2 and 0, 2
    relevant = summary["agreement"]["relevant"]
    assert relevant["table"] == [[1, 1], [1, 2]]
    # p_o = 3/5, p_e = (2 · 2 + 3 · 3) / 25: (15 - 13) / (25 - 13)
    assert (relevant["percent"], relevant["kappa"]) == (60.0, 0.1667)
    assert summary["unjudged"] == {"pairs": 4, "grades": {"0": 0, "1": 1, "2": 1, "3": 2}}
    assert "Grade how well a passage answers a query" in summary["prompt"]


def test_the_sample_is_drawn_by_the_seed(stage):
    def drawn(artifact):
        return [
            (row["query_id"], row["doc_id"])
            for row in rows(artifact, "grades.parquet")
            if row["people"] is not None
        ]

    samples = [drawn(stage(f"seed{seed}", sample=2, seed=seed)) for seed in range(6)]
    assert all(len(sample) == 2 for sample in samples)
    assert len(set(map(tuple, samples))) > 1
    assert drawn(stage("again", sample=2, seed=3)) == samples[3]


def test_grades_of_people_are_kept_as_grades(stage):
    artifact = stage(scale="graded", relevant_from=1)
    machine = [
        row["relevance"] for row in rows(artifact, "qrels.parquet") if row["made_by"] == MODEL
    ]
    assert machine == [2, 3, 1, 3]
    agreement = json.loads(artifact.path("summary.json").read_text())["agreement"]
    assert agreement["grades"]["table"] == [[1, 0, 1, 0], [0, 1, 1, 1], [0] * 4, [0] * 4]
    assert agreement["relevant"]["table"] == [[1, 1], [0, 3]]
    strict = stage("strict", scale="graded", relevant_from=2)  # people gave no grade above 1
    changes = json.loads(strict.path("changes.json").read_text())
    assert changes["positives_per_query"] == {"before": 0.0, "after": 1.5}


def test_the_sheet_is_filled_and_read_back_as_a_machines(stage, tmp_path):
    text = stage().path("sheet.csv").read_text(encoding="utf-8-sig").splitlines()
    assert text[0].endswith(",verdict,grade,filled_by")
    # one passage a query is on it: p2, the first of q1, and p3, the first of q2
    assert [line.split(",")[:2] + line.split(",")[-3:] for line in text[1:]] == [
        ["q1", "p2", "1", "2", MODEL],
        ["q2", "p3", "0", "1", MODEL],
    ]
    sheet = tmp_path / "filled.csv"
    sheet.write_text("\n".join(text))
    relabelled = stage.run_stage(
        "relabel",
        relabel_stage,
        {},
        {"dataset": stage.data, "pool": stage.pool},
        {"path": str(sheet)},
    )
    assert (relabelled.manifest.facts["verdict"], relabelled.manifest.facts["machine_made"]) == (
        "machine",
        2,
    )


def test_answers_without_a_grade_are_counted_and_leave_no_label(stage, server):
    answers = {"3": "It is a 3.", "2": "Grade: 2", "1": "no idea", "0": "Grade: 7"}
    server.respond = lambda body, number: (200, completion(answers[graded(body)]))
    artifact = stage()
    facts = artifact.manifest.facts
    # of grade 3: p5 twice and p1; without a grade: p3 of both queries, p4
    assert (facts["repaired"], facts["without_grade"]) == (3, 3)
    assert facts["warnings"] == ["3 of 9 answers name no grade and are left out"]
    grades = {
        (row["query_id"], row["doc_id"]): row["grade"] for row in rows(artifact, "grades.parquet")
    }
    assert grades["q2", "p3"] is None
    labels = {
        (row["query_id"], row["doc_id"])
        for row in rows(artifact, "qrels.parquet")
        if row["made_by"] == MODEL
    }
    assert labels == set(UNJUDGED) - {("q2", "p3")}
    summary = json.loads(artifact.path("summary.json").read_text())
    assert summary["without_grade"] == {"unjudged": 1, "judged": 2}


@pytest.mark.parametrize(
    ("respond", "line"),
    [
        (lambda *_: (500, {"error": {"message": "out of order"}}), "status 500: .*out of order"),
        (lambda *_: (200, b"<html>"), "gives no chat completion|is not a chat completion"),
    ],
    ids=["broken", "garbage"],
)
def test_a_server_that_fails_is_one_line_and_grades_are_kept(respond, line, stage, server):
    good, endpoint = server.respond, {"retries": 0, "at_once": 1}
    server.respond = lambda body, number: (
        good(body, number) if number <= 6 else respond(body, number)
    )
    with pytest.raises(UserError, match=line) as error:
        stage(endpoint=endpoint)
    assert str(error.value).endswith("what is answered is kept: run the same command again")
    assert "\n" not in str(error.value)
    server.respond = good
    facts = stage(endpoint=endpoint).manifest.facts
    assert (facts["known"], facts["asked"]) == (6, 3)


def test_labels_beyond_the_scale_are_refused(stage, make_collection, make_run, make_job, tmp_path):
    data = make_collection(
        tmp_path / "d" / "other-0123456789", PASSAGES, QUERIES, [("q1", "p1", 4, "test")]
    )
    run = make_run(tmp_path / "r" / "bm25.test-0123456789", data, "test", RANKED)
    pool = tmp_path / "f" / "pool-0123456789"
    pool_stage(
        make_job("false_negatives", pool, {"split": "test"}, {"dataset": data, "run.0": run})
    )
    params = {"model": "m", "split": "test", "seed": 1, "scale": "graded"}
    inputs = {"dataset": data, "pool": open_artifact(pool), "run.0": run}
    with pytest.raises(
        UserError,
        match="scale is graded, but the highest label of split test is 4; grades go from 0",
    ):
        judge_stage(make_job("judge_llm", tmp_path / "j" / "j-0123456789", params, inputs))


def test_the_page_shows_scores_side_by_side_and_whose_labels_they_are(stage):
    judge, how = stage(), {"measures": ["RR@10"], "split": "test"}
    inputs = {"dataset": stage.data, "run": stage.run, "subset": stage.pool}
    scores = [
        stage.run_stage("score", score, how, inputs, name="before"),
        stage.run_stage("score", score, how, {**inputs, "labels": judge}, name="after"),
    ]
    stages = walk(scores)
    audits = collect_audits(stages)
    [labels] = audits.false_negatives[0].relabelled
    assert labels.effects.head == ["Run", "queries", "RR@10, before", "RR@10, after, machine-made"]
    # first relevant at ranks 2 and 2 by people; with the model's p2 of q1 at rank 1
    assert labels.effects.rows == [["bm25.test-0123456789", "2", "50.00", "75.00"]]
    page = str(make_environment().get_template("_audits.html").make_module().findings(audits))
    assert f"Relabelled by a language model ({MODEL}), not by people" in page
    assert "Every new label is machine-made" in page
    assert "the same label for 60.00 % of 5 pairs; Cohen&#39;s κ 0.17" in page
    assert "judge_llm,agreement.relevant.kappa,,0.1667,," in write_audits_csv(stages.values())
