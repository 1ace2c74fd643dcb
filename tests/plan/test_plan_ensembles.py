"""An ensemble stands for its cross-encoders wherever these score pairs."""

from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]
MEMBERS = ["ce_bm25neg", "ce_deneg"]


@pytest.fixture
def planned(configured):
    """`planned(path, value, members)`: the plan of the default with one key set and an ensemble `both`."""

    def make(path="", value=None, members=MEMBERS):
        return Plan({**configured(path, value), "ensembles": {"both": {"of": members}}}, ROOT)

    return make


def test_an_ensemble_reranks_with_all_its_members(planned):
    plan = planned("execution", {"shards": 3})
    stage = plan.planner.run("bm25+both", "test", "here")
    assert (stage.kind, stage.name) == ("rerank", "bm25+both.test")
    assert stage.upstream.keys() == {"dataset", "run"} | {
        f"{role}.{at}" for role in ("judge", "judge_tokens") for at in "01"
    }
    assert [stage.upstream[f"judge.{at}"].name for at in range(2)] == MEMBERS
    single = plan.planner.run("bm25+ce_bm25neg", "test", "here")
    assert stage.values == single.values
    assert single.upstream.keys() == {"dataset", "run", "model", "tokens"}
    assert len(plan.placement.shards("rerank", stage.key)) == 3


def test_an_ensemble_is_the_list_of_its_members(configured):
    """Under its name or as a list, alone or beside another model: one stage."""
    alike = {"both": MEMBERS, "listed": MEMBERS, "beside": [*MEMBERS, "ce_deneg"]}
    named = {"both": "both", "listed": ["both"], "beside": ["both", "ce_deneg"]}
    models = configured()["models"]
    for way, names in (("by_name", named), ("by_list", alike)):
        for case, by in names.items():
            models[f"denoised_{case}_{way}"] = {
                "like": "rocketqav2",
                "candidates": {"denoise": {"by": by}},
            }
            models[f"taught_{case}_{way}"] = {
                "like": "de_bm25neg",
                "train": {"distil": {"from": by}},
            }
    plan = Plan({**configured(), "models": models, "ensembles": {"both": {"of": MEMBERS}}}, ROOT)
    for case in named:
        for kind in ("denoised", "taught"):
            by_name, by_list = (
                plan.planner.model(f"{kind}_{case}_{way}", "here") for way in ("by_name", "by_list")
            )
            assert by_name is by_list
    teacher = plan.planner.model("taught_both_by_name", "here").upstream["teacher"]
    assert teacher.name == "both"
    assert [teacher.upstream[f"judge.{at}"].name for at in range(2)] == MEMBERS


def test_the_default_keeps_its_keys_beside_an_ensemble(planned, configured):
    plain = Plan(configured(), ROOT)
    assert [stage.key for _, stage in planned().tables["summary"]] == [
        stage.key for _, stage in plain.tables["summary"]
    ]


@pytest.mark.parametrize(
    ("members", "line"),
    [
        (
            ["ce_bm25neg", "ce_denge"],
            "ensembles.both.of: ce_denge is not a model; did you mean ce_deneg?",
        ),
        (
            ["ce_bm25neg", "de_bm25neg"],
            "ensembles.both.of: de_bm25neg is a dual model, needed is cross or joint",
        ),
        (["both"], "ensembles.both.of: both is an ensemble itself; name its cross-encoders"),
        ([], "ensembles.both.of is []"),
    ],
)
def test_a_wrong_ensemble_is_one_line(planned, members, line):
    with pytest.raises(UserError) as error:
        planned(members=members)
    (message,) = str(error.value).splitlines()
    assert line in message


def test_an_ensemble_has_a_name_of_its_own(configured):
    with pytest.raises(
        UserError, match=r"ensembles.ce_deneg has the name of models.ce_deneg; name it otherwise"
    ):
        Plan({**configured(), "ensembles": {"ce_deneg": {"of": MEMBERS}}}, ROOT)
