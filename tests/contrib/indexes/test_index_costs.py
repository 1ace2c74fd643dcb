"""Indexes, and searches through them: operations, memory and time counted by hand."""

import math

import pytest
from costed import INDEXES, QUESTIONS, D, N, make_machine, planned
from pytest import approx

from tandem.contrib.indexes.costs import IndexSize
from tandem.extras.estimate.estimate import estimate_stage, new_setting
from tandem.extras.estimate.resources import cost


@pytest.fixture
def machine():
    return make_machine()


def costs(plan, machine, stage):
    return estimate_stage(stage, new_setting(plan.settings, machine), machine)


def index(plan, name):
    return plan.planner.run(f"de@{name}", "dev", "test").upstream["index"]


def test_lists_by_hand(machine):
    """Ten rounds of 500 passages against ten centroids; then 1,000 passages against them."""
    plan = planned()
    cost = costs(plan, machine, index(plan, "lists"))
    learned, listed = 10 * 2 * 500 * 10 * D, 2 * N * 10 * D
    assert cost.wall == approx(1 + (learned + listed) / 1e3)
    assert cost.disk == N * (4 * D + 8) + 4 * 10 * D
    sharded = planned(execution={"shards": 4})
    assert costs(sharded, machine, index(sharded, "lists")).wall == approx(
        1 + (learned + listed / 4) / 1e3
    )


def test_codes_are_learned_and_made_by_one_thread(machine):
    plan = planned()
    cost = costs(plan, machine, index(plan, "codes"))
    codes = 25 * 2 * 500 * 16 * D
    rotation = 50 * (4 * 500 * D * D + 4 * 2 * 500 * 256 * D)
    alone = codes + rotation + 2 * N * 16 * D
    assert cost.wall == approx(1 + (10 * 2 * 500 * 10 * D + 2 * N * 10 * D) / 1e3 + alone / 1e2)
    assert cost.disk == N * (4 * 4 / 8 + 8) + 4 * 10 * D


def test_a_graph_is_grown_by_one_thread_and_has_links(machine):
    plan = planned()
    cost = costs(plan, machine, index(plan, "graph"))
    assert cost.wall == approx(1 + N * 20 * 6 * (2 * D / 1e2 + math.log2(400) / 1e6))
    assert cost.disk == N * (4 * D + 4 * 6)
    assert cost.memory == (150 << 20) + 400 * (4 * D + 4 * 6)


def test_a_graph_in_the_words_of_faiss_costs_what_the_catalogues_does(machine):
    own = INDEXES["graph"] | {"type": "factory", "factory": "HNSW3"}
    del own["m"]
    plan = planned(indexes={**INDEXES, "own": own, "usual": {"factory": "HNSW,Flat", "part": 400}})
    graph, same, usual = (
        costs(plan, machine, index(plan, name)) for name in ("graph", "own", "usual")
    )
    assert (same.wall, same.disk) == (graph.wall, graph.disk)
    searches = [
        costs(plan, machine, plan.planner.run(f"de@{name}", "dev", "test")).wall
        for name in ("graph", "own")
    ]
    assert searches[0] == searches[1]
    # FAISS's own: 32 links, twice as many in the lowest layer, and 40 candidates while it is built
    assert usual.wall == approx(1 + N * 40 * 64 * (2 * D / 1e2 + math.log2(400) / 1e6))
    assert usual.disk == N * (4 * D + 4 * 64)


def test_the_words_of_faiss_tell_their_lists(machine):
    plan = planned()
    stage = index(plan, "words")
    assert IndexSize(stage, new_setting(plan.settings, machine)).nlist == 16


def test_a_search_by_hand(machine):
    """Lists: ten centroids, four tenths of the passages, exact scores of 200; of what is visited 160 bytes more."""
    plan = planned()
    lists, codes, small, graph, signs = (
        costs(plan, machine, plan.planner.run(f"de@{name}", "dev", "test"))
        for name in ("lists", "codes", "bytes", "graph", "signs")
    )
    rescored, exact = 2 * 200 * D, QUESTIONS * N * (2 * D / 1e3 + 1 / 1e7)
    near = QUESTIONS * (2 * 10 * D + rescored) / 1e3
    assert lists.wall == approx(1 + near + QUESTIONS * 400 * (160 + 4 * D) / 1e5)
    # four codes of four bits are two bytes
    assert codes.wall == approx(1 + near + QUESTIONS * N * (160 + 2) / 1e5 + exact)
    scanned = QUESTIONS * N * (160 + D) / 1e5
    assert small.wall == approx(1 + scanned + 5 * N * (2 * D / 1e3 + 1 / 1e7))
    # a byte for eight dimensions, exact scores of four times the depth
    assert signs.wall == approx(1 + QUESTIONS * (N * D / 8 + 2 * 400 * D) / 1e3)
    assert costs(plan, machine, index(plan, "signs")).disk == N * D / 8
    # three graphs of at most 400 passages, 16 candidates with six links each
    steps = 3 * 16 * 6 * math.log2(400) / 1e6
    assert graph.wall == approx(
        1 + QUESTIONS * ((3 * 16 * 6 * 2 * D + rescored) / 1e3 + steps) + exact
    )


def test_gpus_search_at_the_rate_of_exact_search(machine):
    plan = planned(execution={"index_gpu": "replicate"})
    cost = costs(plan, machine, index(plan, "lists"))
    assert cost.wall == approx(1 + (10 * 2 * 500 * 10 * D + 2 * N * 10 * D) / 1e4)


def test_both_stages_have_costs():
    assert {"index", "ann"} <= set(cost)
