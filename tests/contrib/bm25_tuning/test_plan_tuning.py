"""Variants of BM25 that are tuned: the stage that they take k1 and b from, and what it needs."""

import pytest

from tandem import ROOT
from tandem.contrib.bm25_tuning.options import TuneBm25Params
from tandem.errors import UserError
from tandem.extras.plan import FullPlan


@pytest.fixture
def planned(configured):
    """`planned(sparse, **bm25)`: the default's plan with variants, and with other keys of `bm25`."""

    def make(sparse, **bm25):
        return FullPlan(configured() | {"sparse": sparse, "bm25": bm25}, ROOT)

    return make


def run(plan, system, split="test"):
    """The stage that writes a system's run."""
    return plan.planner.run(system, split, "here")


def test_a_tuned_variant_takes_k1_and_b_from_a_stage_that_searches_as_it_does(planned):
    tune = {"k1": [1, 2], "b": [0.5], "measure": "nDCG@10", "queries": 50}
    plan = planned({"best": {"tuned": True, "rm3": {}}}, tune=tune)
    best = run(plan, "best")
    tuned = best.upstream["tuned"]
    assert (best.values["k1"], best.values["b"]) == (None, None)
    assert (tuned.kind, tuned.name) == ("tune_bm25", "best.dev")
    chosen_by = {"measure": "nDCG@10", "split": "dev", "queries": 50, "depth": 10}
    assert tuned.params == TuneBm25Params(k1=(1.0, 2.0), b=(0.5,), rm3=best.params.rm3, **chosen_by)
    assert tuned.upstream["lucene"] is best.upstream["lucene"]
    assert run(plan, "best", "dev").upstream["tuned"] is tuned


@pytest.mark.parametrize(
    ("measure", "depth"), [("IPrec@0.5", 100), ("IPrec@1.0", 100), ("AP", 100), ("RR@7", 7)]
)
def test_tuning_searches_as_deep_as_the_measure_looks(planned, measure, depth):
    # @ of IPrec is a recall: its precision may be that of any rank
    plan = planned({"best": {"tuned": True}}, tune={"measure": measure})
    assert plan.settings.depth.dev == 100
    assert run(plan, "best").upstream["tuned"].values["depth"] == depth


def test_tuning_asks_for_judgements_of_its_split(planned, configured, tmp_path):
    plan = planned({"best": {"tuned": True}}, tune={"split": "validation"})
    with pytest.raises(
        UserError,
        match="sparse.best: is tuned on split validation, but dataset pydocs has dev, test, tr",
    ):
        run(plan, "best")
    entry = {"of": "pydocs", "source": "dissimilar", "relevance": "answers"}
    config = configured("sparse", {"best": {"tuned": True}}) | {"datasets": {"asked": entry}}
    plan = FullPlan(config, ROOT)
    with pytest.raises(UserError, match="sparse.best.tuned needs qrels; dataset asked has answers"):
        plan.planner.run("best", "test", "here", "asked")
