"""What ranking each query's relevant passage costs, counted by hand."""

from costed import D, make_machine, planned
from pytest import approx

from tandem.extras.estimate.estimate import new_setting
from tandem.extras.estimate.resources import cost

VALIDATED = 20  # queries


def test_every_query_is_compared_with_every_passage_of_the_reduced_corpus():
    parted = {
        "objective": "dual",
        "candidates": {"from": "bm25", "depth": 20},
        "train": {"checkpoints": 2, "choose": "dev", "steps": 10},
    }
    plan = planned(
        models={"de": parted},
        validation={"depth": 10, "queries": VALIDATED, "method": "average_rank"},
    )
    chosen = plan.planner.model("de", "test")
    ranked = chosen.upstream["validation.1"]
    assert ranked.kind == "average_rank"
    setting = new_setting(plan.settings, make_machine())
    rows = dict(cost["average_rank"](ranked, setting).rows)
    passages = setting.passages(ranked)
    assert 0 < passages < 1000
    assert rows == {
        "flat_search": approx(2 * D * VALIDATED * passages),
        "compared": approx(VALIDATED * passages),
    }
