"""Runs on broken queries: what they are planned from, and what is wrong with them in one line."""

import pytest

from tandem import ROOT
from tandem.errors import Unavailable, UserError
from tandem.plan.plan import Plan

BROKEN = {"source": "perturbed", "of": "pydocs", "kinds": ["swap", "case"]}


@pytest.fixture
def planned(configured):
    """`planned(perturbed, **broken)`: the default's plan with runs on broken queries."""

    def make(perturbed, **broken):
        config = configured()
        config.setdefault("datasets", {})["pydocs_broken"] = BROKEN | broken
        return Plan(config | {"perturbed": perturbed}, ROOT)

    return make


def test_a_run_on_broken_queries_is_one_on_the_queries_as_they_were(planned):
    plan = planned(
        {
            "bm25_swap": {"of": "bm25", "dataset": "pydocs_broken", "kind": "swap"},
            "de_swap": {"of": "de_bm25neg", "dataset": "pydocs_broken", "kind": "swap"},
            "de_case": {"of": "de_bm25neg", "dataset": "pydocs_broken", "kind": "case"},
        }
    )
    swap, dense, upper = (
        plan.planner.run(name, "test", "here") for name in ("bm25_swap", "de_swap", "de_case")
    )
    assert swap.kind == "restore_queries"
    assert swap.upstream["dataset"] is plan.planner.dataset()
    assert swap.upstream["perturbed"].upstream["of"] is plan.planner.dataset()
    assert swap.upstream["run"].values["split"] == "test_swap"
    passages = [stage.upstream["run"].upstream["passages"] for stage in (dense, upper)]
    assert passages[0] is passages[1]  # encoded once
    model = passages[0].upstream["model"]
    # it learned from the queries as they are
    assert model is plan.planner.model("de_bm25neg", "here")


def test_copies_of_passages_leave_out_what_the_dataset_does(planned):
    of = planned({}).planner.dataset("pydocs_broken")
    assert "excludes_own" not in of.values
    of = planned({}, ignore_identical_ids=True).planner.dataset("pydocs_broken")
    assert of.values["excludes_own"] is True


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"kind": "drop"},
            "perturbed.x.kind is drop, but datasets.pydocs_broken.kinds has swap, case",
        ),
        (
            {"dataset": "pydocs"},
            "perturbed.x.dataset is pydocs, which is not a dataset of source perturbed",
        ),
        (
            {"kind": "typo"},
            "perturbed.x.kind is .typo.; allowed: keyboard, swap, drop, double, case, order",
        ),
        ({"of": "bm26"}, "perturbed.x.of: .*bm26"),
    ],
)
def test_what_is_wrong_is_one_line(planned, entry, message):
    with pytest.raises(UserError, match=message) as error:
        planned({"x": {"of": "bm25", "dataset": "pydocs_broken", "kind": "swap"} | entry})
    assert "\n" not in str(error.value)


def test_only_the_broken_split_has_such_a_run(planned):
    plan = planned({"x": {"of": "bm25", "dataset": "pydocs_broken", "kind": "swap"}})
    with pytest.raises(Unavailable, match="x is on split dev, but pydocs_broken breaks test alone"):
        plan.planner.run("x", "dev", "here")


def test_a_split_that_the_dataset_lacks_is_named(planned):
    with pytest.raises(UserError, match="datasets.pydocs_broken.split is tset, but .*pydocs has"):
        planned(
            {"x": {"of": "bm25", "dataset": "pydocs_broken", "kind": "swap"}},
            split="tset",
        )
