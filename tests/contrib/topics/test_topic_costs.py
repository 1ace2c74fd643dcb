"""What clustering queries costs, counted by hand."""

from costed import make_machine, planned
from pytest import approx

from tandem.extras.estimate.estimate import estimate_stage, new_setting

QUERIES, NUMBERS, CLUSTERS = 500, 8, 20
ROUNDS = 11  # ten of k-means, and the one that assigns
FAISS = 1e3  # million operations a second of that machine


def test_every_query_is_compared_with_every_centre_in_each_round():
    lists = {"from": "bm25", "depth": 20}
    batches = {"topics": {"by": "b", "clusters": CLUSTERS}}
    plan = planned(
        models={"by_topic": {"objective": "dual", "candidates": lists, "train": batches}}
    )
    machine = make_machine()
    topics = plan.planner.model("by_topic", "test").upstream["topics"]
    cost = estimate_stage(topics, new_setting(plan.settings, machine), machine)
    compared = QUERIES * CLUSTERS * ROUNDS
    assert cost.wall == approx(1 + 2 * NUMBERS * compared / FAISS)
