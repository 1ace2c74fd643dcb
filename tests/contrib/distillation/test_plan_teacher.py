"""Who teaches is upstream, not a parameter; what is wrong with a teacher is one line."""

import json
import subprocess
import sys

import pytest
import yaml

from tandem import ROOT
from tandem.config.losses import READS
from tandem.contrib.distillation.options import TeacherParams
from tandem.contrib.distillation.read_scores import find_what_is_read
from tandem.errors import UserError
from tandem.plan.plan import Plan


@pytest.fixture
def student(configured):
    """`student(from, **distil)`: the stage of a dual encoder that is taught; `models` adds models or changes them."""

    def plan(source, models=None, **distil):
        config = configured(
            "models.pupil", {"like": "de_bm25neg", "train": {"distil": {"from": source, **distil}}}
        )
        for name, spec in (models or {}).items():
            config["models"][name] = {**config["models"].get(name, {}), **spec}
        return Plan(config, ROOT).planner.model("pupil", "here")

    return plan


def test_a_cross_encoder_teaches_the_lists_that_the_student_learns_from(student):
    stage = student("ce_bm25neg", loss="reference", weight=2)
    teacher = stage.upstream["teacher"]
    assert (teacher.kind, teacher.name) == ("teacher", "ce_bm25neg")
    assert teacher.upstream.keys() == {"dataset", "candidates", "judge.0", "judge_tokens.0"}
    assert teacher.upstream["candidates"] is stage.upstream["candidates"]
    assert teacher.upstream["judge.0"].name == "ce_bm25neg"
    assert teacher.values == {"precision": "auto", "batch_tokens": 4096}
    distil = stage.values["train"]["distil"]
    assert (distil["loss"], distil["weight"], distil["supervision"]) == ("reference", 2.0, 1.0)
    assert "from" not in distil


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("bm25", "bm25", "bm25.train"),
        ("bm25.krovetz", "bm25", "bm25.krovetz.train"),
        ("given", "given", "given.train"),
        ("de_bm25neg", "retrieve", "de_bm25neg.train"),
        ("rocketqav2.retriever", "retrieve", "rocketqav2.train"),
        ("bm25+ce_bm25neg", "rerank", "bm25+ce_bm25neg.train"),
    ],
)
def test_any_run_teaches(student, source, kind, name):
    teacher = student(source, loss="ranknet").upstream["teacher"]
    assert teacher.upstream.keys() == {"dataset", "candidates", "run"}
    assert (teacher.upstream["run"].kind, teacher.upstream["run"].name) == (kind, name)
    assert teacher.params == TeacherParams()


@pytest.fixture
def ordered(configured, tmp_path):
    """`ordered(from, **distil)`: the student of teachers some of which give an order alone."""
    (tmp_path / "run.tsv").write_text("q\ta\t1\n")
    model = {"model": str(tmp_path), "endpoint": {"url": "http://localhost:1/v1"}}

    def plan(source, **distil):
        student = {"like": "de_bm25neg", "train": {"distil": {"from": source, **distil}}}
        config = configured("models.pupil", student)
        files = {"train": str(tmp_path / "run.tsv")}
        config["runs"] = {"ranks": {"format": "ranks", "paths": files}}
        config["llm_rerankers"] = {
            "windows": {"method": "listwise", **model},
            "bubbles": {"method": "pairwise", "passes": 2, **model},
            "pairs": {"method": "pairwise", **model},
        }
        return Plan(config, ROOT).planner.model("pupil", "here").upstream["teacher"]

    return plan


READ_ORDERS = "allowed: listmle, hinge, ranknet, lambdarank, lambda_mrr"


@pytest.mark.parametrize("source", ["given", "ranks", "bm25+windows", "bm25+bubbles"])
def test_an_order_is_refused_where_the_loss_reads_scores(ordered, source):
    with pytest.raises(UserError) as error:
        ordered(source)
    assert str(error.value) == (
        f"models.pupil.train.distil.loss is paper, which reads scores, but {source} gives an order alone; "
        f"{READ_ORDERS}"
    )
    assert ordered(source, loss="listmle").kind == "teacher"


def test_an_order_among_scores_is_refused_and_a_count_of_wins_is_none(ordered):
    with pytest.raises(UserError, match="loss is kl, which reads scores, but given gives an order"):
        ordered(["bm25", "given"], loss="kl", normalize="z_score")
    assert ordered("bm25+pairs", loss="kl").kind == "teacher"


PLUGIN = """
from tandem.config.losses import distillation

@distillation("silent")
def silent(student, teacher, mask):
    return student.sum()

@distillation("by_place", reads="order")
def by_place(student, teacher, mask):
    return student.sum()

@distillation("by_size", reads="scale")
def by_size(student, teacher, mask):
    return student.sum()
"""
SCRIPT = """
import sys
from pathlib import Path

import yaml

from tandem.errors import UserError
from tandem.plan.plan import Plan

root, plugin = map(Path, sys.argv[1:])
config = yaml.safe_load((root / "config/config.yaml").read_text()) | {"plugins": [str(plugin)]}
for loss in ("silent", "by_place", "by_size"):
    distil = {"from": "given", "loss": loss}
    config["models"]["pupil"] = {"like": "de_bm25neg", "train": {"distil": distil}}
    try:
        print(Plan(config, root).planner.model("pupil", "here").upstream["teacher"].kind)
    except UserError as error:
        print(error)
"""


def test_a_plugins_loss_says_what_it_reads_or_is_let_through(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    words = [sys.executable, "-c", SCRIPT, str(ROOT), str(tmp_path / "mine.py")]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[:2] == ["teacher", "teacher"]
    assert lines[2].startswith("models.pupil.train.distil.loss is by_size, which reads scores, but")
    assert lines[2].endswith(f"{READ_ORDERS}, by_place")


def test_a_loss_that_reads_something_unknown_is_one_line(monkeypatch):
    monkeypatch.setitem(READS, "odd", "ordr")
    with pytest.raises(UserError, match="^distillation loss odd reads ordr; did you mean order?"):
        find_what_is_read("odd")


def test_a_run_teaches_the_queries_that_have_lists(student):
    lists = {"from": "bm25", "split": "dev"}
    stage = student("de_bm25neg", {"pupil": {"candidates": lists}})
    assert stage.upstream["candidates"].values["split"] == "dev"
    assert stage.upstream["teacher"].upstream["run"].name == "de_bm25neg.dev"


def test_a_released_file_of_scored_triples_teaches(configured, tmp_path):
    (tmp_path / "scores.tsv").write_text("2\t1\tq\ta\tb\n")
    config = configured("models.pupil", {"like": "de_bm25neg", "train": {"distil": {"from": "kd"}}})
    config["runs"] = {
        "kd": {"format": "margin_mse", "paths": {"train": str(tmp_path / "scores.tsv")}}
    }
    run = Plan(config, ROOT).planner.model("pupil", "here").upstream["teacher"].upstream["run"]
    assert (run.kind, run.name, run.values["format"]) == ("imported", "kd.train", "margin_mse")


LINE = {"query": "a?", "pos": ["x"], "neg": ["y", "z"]}
SCORES = {"pos_scores": [2.5], "neg_scores": [0.5, -0.5]}


@pytest.fixture
def listed(configured, tmp_path):
    """`listed(line, **distil)`: the student of training lists that begin so, taught by `given_scores`."""

    def plan(line, source="given_scores", **distil):
        (tmp_path / "lists.jsonl").write_text(f"{json.dumps(line)}\n")
        student = {"like": "de_bm25neg", "train": {"distil": {"from": source, **distil}}}
        config = configured("models.pupil", student) | {"dataset": "mine"}
        entry = {"source": "training_lists", "path": str(tmp_path)}
        config["datasets"]["mine"] = entry | {"lists": {"train": "lists.jsonl"}}
        return Plan(config, ROOT).planner.model("pupil", "here")

    return plan


def test_scores_that_stand_in_the_lists_teach(listed):
    teacher = listed(LINE | SCORES, loss="kl").upstream["teacher"]
    assert teacher.upstream.keys() == {"dataset", "candidates", "run"}
    scores = teacher.upstream["run"]
    assert (scores.kind, scores.values) == ("given_scores", {"split": "train"})
    assert listed(LINE | SCORES, loss="mse_probability").upstream["teacher"].upstream[
        "run"
    ].values == {"split": "train", "as_logits": True}


def test_scores_that_stand_in_the_lists_teach_beside_others(listed):
    sources = ["given_scores", "ms-marco-minilm-l6"]
    teacher = listed(LINE | SCORES, sources, loss="kl", normalize="z_score").upstream["teacher"]
    assert teacher.upstream["run.0"].kind == "given_scores"
    assert teacher.values["weights"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (LINE, "lists.jsonl:1: pos has no pos_scores; give each passage a score"),
        (LINE | {"pos_scores": [2.5]}, "lists.jsonl:1: neg has no neg_scores"),
        (LINE | SCORES | {"negative_1": "w"}, "lists.jsonl:1: negative_1 has no scores"),
    ],
)
def test_lists_without_scores_are_refused_while_planning(listed, line, problem):
    with pytest.raises(UserError) as error:
        listed(line)
    (message,) = str(error.value).splitlines()
    assert message.startswith("models.pupil.train.distil.from: given_scores: ")
    assert problem in message


def test_a_dataset_without_lists_is_refused_while_planning(student):
    line = "distil.from: given_scores: dataset pydocs has no training lists of its own"
    with pytest.raises(UserError, match=line):
        student("given_scores")


def test_of_a_joint_model_the_cross_encoder_teaches_unless_the_retriever_is_named(student):
    alone, part = student("rocketqav2"), student("rocketqav2.reranker")
    assert alone is not None
    assert alone.upstream["teacher"].upstream["judge.0"].name == "rocketqav2"
    assert alone.digest == part.digest


def test_several_teachers_are_one_stage(student):
    teacher = student(["ce_bm25neg", "ce_deneg"]).upstream["teacher"]
    assert [teacher.upstream[f"judge.{i}"].name for i in range(2)] == ["ce_bm25neg", "ce_deneg"]
    assert teacher.name == "ce_bm25neg-ce_deneg"


def test_teachers_of_several_kinds_with_weights(student, configured):
    models = {"taught": {"like": "ce_bm25neg"}}
    teacher = student(
        ["bm25", "ce_bm25neg", "encoder"], models, weights=[1, 4, 2], normalize="z_score"
    ).upstream["teacher"]
    assert teacher.values["weights"] == [4.0, 1.0, 2.0]  # cross-encoders come first
    assert teacher.values["normalize"] == "z_score"
    assert teacher.upstream["judge.0"].name == "ce_bm25neg"
    assert [teacher.upstream[f"run.{i}"].kind for i in range(2)] == ["bm25", "retrieve"]
    with pytest.raises(UserError, match="distil.weights has 1 numbers, but from names 2 teachers"):
        student(["ce_bm25neg", "ce_deneg"], weights=[1])
    with pytest.raises(UserError, match="distil.weights has 2 numbers, but from names 1 teachers"):
        student("bm25", weights=[1, 2])


def test_an_ensembles_members_share_its_weight(configured):
    config = configured("models.pupil", {"like": "de_bm25neg"})
    config["ensembles"] = {"both": {"of": ["ce_bm25neg", "ce_deneg"]}}
    config["models"]["pupil"]["train"] = {
        "distil": {"from": ["both", "rocketqav2"], "weights": [1, 3]}
    }
    teacher = Plan(config, ROOT).planner.model("pupil", "here").upstream["teacher"]
    assert teacher.values["weights"] == [0.5, 0.5, 3.0]
    assert [teacher.upstream[f"judge.{i}"].name for i in range(3)] == [
        "ce_bm25neg",
        "ce_deneg",
        "rocketqav2",
    ]
    config["models"]["pupil"]["train"] = {
        "distil": {"from": ["both", "bm25"], "normalize": "z_score"}
    }
    teacher = Plan(config, ROOT).planner.model("pupil", "here").upstream["teacher"]
    # without weights each member counts, and so does the run
    assert teacher.values["weights"] == [1.0, 1.0, 1.0]


def test_a_teachers_name_is_in_no_key_but_its_training_is(student):
    original = student("ce_bm25neg")
    renamed = student("other", models={"other": {"like": "ce_bm25neg"}})
    assert renamed.digest == original.digest
    changed = student("ce_bm25neg", models={"ce_bm25neg": {"train": {"lr": 1e-3}}})
    assert changed.digest != original.digest
    assert student("ce_bm25neg", loss="reference").digest != original.digest
    assert (
        student("ce_bm25neg", loss="reference").upstream["teacher"].digest
        == original.upstream["teacher"].digest
    )


def test_an_untaught_model_keeps_its_key_beside_a_taught_one(configured):
    config = configured(
        "models.pupil", {"like": "de_bm25neg", "train": {"distil": {"from": "ce_bm25neg"}}}
    )
    plan = Plan(config, ROOT)
    rows = {f"{row.system} | {row.first_stage}": stage.key for row, stage in plan.tables["summary"]}
    assert rows == yaml.safe_load((ROOT / "tests/plan/keys.yaml").read_text())
    assert "teacher" not in plan.planner.model("de_bm25neg", "here").upstream


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "ce_bm25",
            "models.pupil.train.distil.from: ce_bm25 is neither a model nor a run; did you mean ce_bm25neg?",
        ),
        (
            "givn",
            "models.pupil.train.distil.from: givn is neither a model nor a run; did you mean given?",
        ),
        ("bm25.klingon", "models.pupil.train.distil.from: bm25.klingon has an unknown analyzer"),
        (
            "bm25+de_bm25neg",
            "models.pupil.train.distil.from: de_bm25neg is a dual model, needed is cross or joint",
        ),
        (
            ["ce_bm25neg", "bm25"],
            "models.pupil.train.distil.normalize is missing: the scores of bm25 may have another scale",
        ),
        ([], "models.pupil.train.distil.from is []; allowed: 1 or more"),
        ("pupil", "models form a cycle: pupil -> pupil"),
    ],
)
def test_a_wrong_teacher_is_one_line(student, source, line):
    with pytest.raises(UserError) as error:
        student(source)
    (message,) = str(error.value).splitlines()
    assert line in message


def test_a_teacher_that_descends_from_its_student_is_a_cycle(student):
    with pytest.raises(UserError, match="models form a cycle: .*ce_deneg -> pupil"):
        student("ce_deneg", models={"ce_deneg": {"candidates": {"from": "pupil", "depth": 50}}})


def test_a_dual_encoder_teaches_in_batch_beside_the_lists_teacher(student):
    stage = student("ce_bm25neg", in_batch={"from": "rocketqav2.retriever", "loss": "kl"})
    assert stage.upstream["teacher"].name == "ce_bm25neg"
    assert stage.upstream["in_batch_teacher"].name == "rocketqav2"
    assert stage.upstream["in_batch_tokens"].kind == "tokens"
    assert "from" not in stage.values["train"]["distil"]["in_batch"]
    assert stage.digest != student("ce_bm25neg").digest


@pytest.mark.parametrize(
    ("train", "line"),
    [
        (
            {"distil": {"loss": "kl"}},
            "train.distil.from is missing: name a teacher of the lists, or one in_batch",
        ),
        (
            {"distil": {"in_batch": {"from": "ce_bm25neg"}}},
            "in_batch.from: ce_bm25neg is a cross model",
        ),
        (
            {"distil": {"loss": "kl", "in_batch": {"from": "encoder"}}},
            "distil.loss is of a teacher of the lists",
        ),
        (
            {"distil": {"in_batch": {"from": "encoder"}}, "margin_bins": 4},
            "margin_bins needs scores of the lists",
        ),
        (
            {"distil": {"in_batch": {"from": "encoder", "temperature": 2}}},
            "in_batch.temperature is 2.0, but paper",
        ),
    ],
)
def test_a_wrong_teacher_in_batch_is_one_line(configured, train, line):
    config = configured("models.pupil", {"like": "de_bm25neg", "train": train})
    with pytest.raises(UserError) as error:
        Plan(config, ROOT).planner.model("pupil", "here")
    (message,) = str(error.value).splitlines()
    assert line in message


def test_the_recipe_teaches_by_stored_scores(configured):
    config = configured()
    config["recipes"].append("margin_mse")
    model = Plan(config, ROOT).planner.model("de_margin_mse", "here")
    assert model.upstream["teacher"].upstream["judge.0"].name == "ce_bm25neg"
    assert model.values["train"]["distil"]["loss"] == "margin_mse"
    assert model.values["train"]["distil"]["supervision"] == 0
