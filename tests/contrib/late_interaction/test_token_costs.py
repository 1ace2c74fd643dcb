"""What storing and searching vectors of tokens costs, counted by hand."""

import pytest
from costed import DEPTH, N, make_machine, planned
from pytest import approx

from tandem.extras.estimate.estimate import new_setting
from tandem.extras.estimate.model_costs import count_rows
from tandem.extras.estimate.resources import cost


@pytest.fixture
def machine():
    return make_machine()


def plan_with(representation):
    """A plan that has a dual encoder `late` of a representation."""
    lists = {"from": "bm25", "depth": 20}
    late = {"objective": "dual", "candidates": lists, "representation": representation}
    return planned(models={"late": late})


def test_a_row_of_coil_has_the_id_of_its_token(machine):
    plan = plan_with("coil")
    passages = plan.planner.run("late", "dev", "test").upstream["passages"]
    setting = new_setting(plan.settings, machine)
    _, tokens = setting.lengths(passages.upstream["tokens"])
    # Of 32 numbers and 2 of the id, two bytes each; 768 numbers of the whole text are 24 rows more
    assert cost["token_vectors"](passages, setting).disk == approx(N * (tokens + 2 + 24) * 34 * 2)


def test_through_an_index_late_interaction_scores_a_few_times_the_depth(machine):
    plan = plan_with("multi")
    setting = new_setting(plan.settings, machine)
    exact, through = (plan.planner.run(system, "dev", "test") for system in ("late", "late@lists"))
    everything, indexed = (dict(cost["maxsim"](stage, setting).rows) for stage in (exact, through))
    assert indexed["flat_search"] == approx(everything["flat_search"] * 2 * DEPTH / N)
    passages, queries = (
        count_rows(through.upstream[role], setting) for role in ("passages", "queries")
    )
    # each token of a query meets 10 centroids, and reads the tokens in four of ten lists
    assert indexed["faiss"] == approx(queries * 2 * 128 * 10)
    assert indexed["scanned"] == approx(queries * 0.4 * passages * (160 + 4 * 128), rel=1e-4)
