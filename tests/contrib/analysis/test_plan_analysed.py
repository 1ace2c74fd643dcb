"""The analyses behind the notebooks as stages: what each looks at, and every mistake in one line."""

from pathlib import Path

import pytest

from tandem.contrib.analysis.options import HardnessParams
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def default(configured):
    """The default's plan."""
    return Plan(configured(), ROOT)


@pytest.fixture
def plan(configured, overridden):
    """`plan({a/b/c: value, …})`: the default's plan with these keys."""

    def make(keys):
        config = configured()
        return Plan(overridden(config, keys), ROOT)

    return make


def test_wrong_results_are_those_of_the_paper_s_best_system(default):
    stage = default.view("analysis").stage("error_analysis")
    assert stage.dataset == "pydocs"
    assert stage.values == {"split": "test", "top": 5, "queries": 100}
    assert list(stage.upstream) == ["dataset", "run"]
    assert stage.upstream["run"].kind == "rerank"


def test_a_model_without_checkpoints_is_seen_at_its_start_and_end(default):
    stage = default.view("analysis").stage("distillation_dynamics")
    models = default.planner.ctx.planned_models()
    assert stage.upstream["point.0"] is models["rocketqav2"]
    assert "point.1" not in stage.upstream
    assert stage.upstream["retriever"] is models["de_bm25neg"]
    assert stage.upstream["reranker"] is models["ce_deneg"]
    assert (stage.values["list_size"], stage.values["seed"], stage.values["queries"]) == (
        8,
        42,
        100,
    )


def test_every_checkpoint_is_looked_at(plan):
    changed = plan({"models/rocketqav2/train/checkpoints": 3, "depth/dev": 100})
    stage = changed.view("analysis").stage("distillation_dynamics")
    assert [stage.upstream[f"point.{i}"].name for i in range(3)] == [
        f"rocketqav2.{n}" for n in (1, 2, 3)
    ]
    assert stage.upstream["candidates"] is stage.upstream["point.0"].upstream["candidates"]


def test_lists_are_drawn_as_the_training_draws_them(plan):
    sizes = {"budget_minutes": 5, "sizes": "data", "steps": None, "list_size": 8}
    assert analysed(plan({"models/rocketqav2/train": sizes})).values["list_size"] is None
    # there is dev
    assert "set_apart" not in analysed(plan({"models/rocketqav2/train/choose": "dev"})).values
    entry = {
        "source": "ir_datasets",
        "id": "mine",
        "counts": {"train": 90, "test": 9},
        "dev_from_train": None,
    }
    without_dev = {
        "dataset": "mine",
        "datasets/mine": entry,
        "models/rocketqav2/train/choose": "dev",
    }
    # whose judge is calibrated on dev
    without_dev |= {"models/rocketqav2/candidates/denoise": None}
    assert analysed(plan(without_dev)).values["set_apart"] == 100


def analysed(plan):
    return plan.view("analysis").stage("distillation_dynamics")


def test_negatives_of_three_models_judged_by_one(default, plan):
    stage, models = (
        default.view("analysis").stage("negatives"),
        default.planner.ctx.planned_models(),
    )
    names = ["ce_bm25neg", "ce_deneg", "rocketqav2"]
    assert stage.values["models"] == names
    assert stage.values["drawn_from"] == ["bm25", "de_bm25neg", "de_bm25neg"]
    for i, name in enumerate(names):
        assert stage.upstream[f"candidates.{i}"] is models[name].upstream["candidates"]
    assert stage.upstream["judge.0"] is models["ce_deneg"]
    bare = (
        plan({"analysis": {"negatives": {"of": ["ce_bm25neg"], "judges": []}}})
        .view("analysis")
        .stage("negatives")
    )
    assert bare.params == HardnessParams(
        models=("ce_bm25neg",), drawn_from=("bm25",), queries=50, threshold=0.5
    )
    assert list(bare.upstream) == ["dataset", "candidates.0"]


def test_the_defaults_of_other_recipes_are_left_out(configured):
    config = configured("recipes", ["dureader_retrieval"]) | {"tables": ["baseline"]}
    del config["models"]["rocketqav2"]
    fewer = Plan(config, ROOT).view("analysis").stage("negatives")
    assert fewer.values["models"] == ["ce_bm25neg", "ce_deneg"]


def test_analyses_are_planned_only_when_they_are_asked_for(configured):
    plan = FullPlan(configured(), ROOT)
    kinds = {"errors", "dynamics", "hardness"}
    assert not kinds & {kind for kind, _ in plan.stages}
    assert plan.view("analysis").notebook_files() == [
        f"results/notebooks/{name}-pydocs.ipynb"
        for name in ("error_analysis", "distillation_dynamics", "negatives")
    ]
    assert kinds < {kind for kind, _ in plan.stages}


def test_a_job_s_own_process_knows_them_by_their_key(configured):
    config = configured("analysis.dynamics.model", "ce_deneg")  # a mistake in one hides no other
    plan = FullPlan(config, ROOT)
    plan.plan_every_target()
    kinds = {kind for kind, _ in plan.stages}
    assert {"errors", "hardness", "noise", "tradeoffs"} < kinds
    assert "dynamics" not in kinds


@pytest.mark.parametrize(
    ("notebook", "keys", "message"),
    [
        (
            "error_analysis",
            {"errors": {"top": 99999}},
            r"analysis\.errors\.top is 99999, but runs on test are \d+ deep",
        ),
        (
            "error_analysis",
            {"errors": {"system": "bm26"}},
            r"analysis\.errors\.system: bm26 is not a model; ",
        ),
        (
            "distillation_dynamics",
            {"dynamics": {"model": "ce_deneg"}},
            r"ce_deneg is a cross model, needed is joint",
        ),
        ("negatives", {"negatives": {"of": ["ce"]}}, r"analysis\.negatives\.of: ce is unknown; "),
        (
            "negatives",
            {"negatives": {"of": ["ce_deneg", "ce_bm25"]}},
            r"of: ce_bm25 is unknown; did you mean ce_bm",
        ),
        (
            "negatives",
            {"negatives": {"of": ["ce_deneg", "ce_deneg"]}},
            r"of names a value twice; list each once",
        ),
        (
            "negatives",
            {"negatives": {"judges": ["ce_deng"]}},
            r"judges: ce_deng is unknown; did you mean ce_deneg",
        ),
    ],
)
def test_mistakes(plan, notebook, keys, message):
    with pytest.raises(UserError, match=message):
        plan({"analysis": keys}).view("analysis").stage(notebook)


def test_a_group_has_no_wrong_results_of_its_own(plan):
    keys = {"dataset": "nanobeir", "train_on": "pydocs", "tables": []}
    with pytest.raises(UserError, match=r"nanobeir is a group: it has scores, but no passages"):
        plan(keys).view("analysis").stage("error_analysis")


def test_dynamics_are_of_single_vectors(plan):
    keys = {"models/de_bm25neg/representation": "multi", "tables": []}
    message = r"analysis\.dynamics\.model: rocketqav2 is of representation multi; this needs single"
    with pytest.raises(UserError, match=message):
        plan(keys).view("analysis").stage("distillation_dynamics")


def test_a_sheet_that_is_not_there_is_one_line(default, plan, tmp_path):
    changed = plan({"analysis/errors/sheet": str(tmp_path / "none.csv")})
    with pytest.raises(UserError, match=r"analysis\.errors\.sheet is .*none\.csv; no such file"):
        changed.view("analysis").sheet()
    assert default.view("analysis").sheet() is None
