"""Searches and shards: operations and time counted by hand, and which stages have costs at all."""

import pytest
from costed import QUESTIONS, D, N, make_machine, planned
from pytest import approx

from tandem.extras.estimate.estimate import estimate_stage, new_setting
from tandem.extras.estimate.resources import cost


@pytest.fixture
def machine():
    return make_machine()


def costs(plan, machine, stage):
    return estimate_stage(stage, new_setting(plan.settings, machine), machine)


def test_shards_share_a_search_but_not_the_queries_vectors(machine):
    single, four = planned(), planned(execution={"shards": 4})
    cost = [costs(plan, machine, plan.planner.run("de", "dev", "test")) for plan in (single, four)]
    searched = QUESTIONS * N * (2 * D / 1e4 + 1 / 1e7)
    assert [each.wall for each in cost] == [approx(1 + searched), approx(1 + searched / 4)]
    queries = [
        costs(plan, machine, plan.planner.run("de", "dev", "test").upstream["queries"]).wall
        for plan in (single, four)
    ]
    assert queries[0] == queries[1]
    lexical = [
        costs(plan, machine, plan.planner.run("bm25", "dev", "test")).wall
        for plan in (single, four)
    ]
    assert lexical[0] == lexical[1]  # its queries are one part


def test_a_list_that_is_re_ranked_twice_is_of_its_first_stages_split(machine):
    cross = {"objective": "cross", "candidates": {"from": "bm25", "depth": 20}}
    plan = planned(models={"one": cross, "other": {**cross, "train": {"lr": 1e-3}}})
    once, twice = (
        costs(plan, machine, plan.planner.run(f"bm25+{name}", "dev", "test"))
        for name in ("one", "one+other")
    )
    assert twice.operations == once.operations > 0


def test_no_stage_that_decides_a_run_is_left_out():
    training = {"model", "checkpoint", "train_generator"}
    encoding = {"embeddings", "term_weights", "generated"}
    search = {
        "bm25",
        "tune_bm25",
        "retrieve",
        "retrieve_sparse",
        "rerank",
        "rerank_windows",
    }
    assert training | encoding | search <= set(cost)
