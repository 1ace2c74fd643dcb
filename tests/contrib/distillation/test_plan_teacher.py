"""Who teaches is upstream, not a parameter; what is wrong with a teacher is one line."""

import pytest
import yaml

from tandem import ROOT
from tandem.contrib.distillation.options import TeacherParams
from tandem.errors import UserError
from tandem.extras.plan import FullPlan


@pytest.fixture
def student(configured):
    """`student(from, **distil)`: the stage of a dual encoder that is taught; `models` adds models or changes them."""

    def plan(source, models=None, **distil):
        config = configured(
            "models.pupil", {"like": "de_bm25neg", "train": {"distil": {"from": source, **distil}}}
        )
        for name, spec in (models or {}).items():
            config["models"][name] = {**config["models"].get(name, {}), **spec}
        return FullPlan(config, ROOT).planner.model("pupil", "here")

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
    teacher = student(source).upstream["teacher"]
    assert teacher.upstream.keys() == {"dataset", "candidates", "run"}
    assert (teacher.upstream["run"].kind, teacher.upstream["run"].name) == (kind, name)
    assert teacher.params == TeacherParams()


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
    run = FullPlan(config, ROOT).planner.model("pupil", "here").upstream["teacher"].upstream["run"]
    assert (run.kind, run.name, run.values["format"]) == ("imported", "kd.train", "margin_mse")


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
    teacher = FullPlan(config, ROOT).planner.model("pupil", "here").upstream["teacher"]
    assert teacher.values["weights"] == [0.5, 0.5, 3.0]
    assert [teacher.upstream[f"judge.{i}"].name for i in range(3)] == [
        "ce_bm25neg",
        "ce_deneg",
        "rocketqav2",
    ]
    config["models"]["pupil"]["train"] = {
        "distil": {"from": ["both", "bm25"], "normalize": "z_score"}
    }
    teacher = FullPlan(config, ROOT).planner.model("pupil", "here").upstream["teacher"]
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
    plan = FullPlan(config, ROOT)
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
        FullPlan(config, ROOT).planner.model("pupil", "here")
    (message,) = str(error.value).splitlines()
    assert line in message


def test_the_recipe_teaches_by_stored_scores(configured):
    config = configured()
    config["recipes"].append("margin_mse")
    model = FullPlan(config, ROOT).planner.model("de_margin_mse", "here")
    assert model.upstream["teacher"].upstream["judge.0"].name == "ce_bm25neg"
    assert model.values["train"]["distil"]["loss"] == "margin_mse"
    assert model.values["train"]["distil"]["supervision"] == 0
