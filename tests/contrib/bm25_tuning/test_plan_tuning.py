"""Variants of BM25 that are tuned: the stage that they take k1 and b from, and what it needs."""

import pytest
from tiny_project import find_run

from tandem import ROOT
from tandem.contrib.bm25_tuning.options import TuneBm25Params
from tandem.errors import UserError
from tandem.plan.plan import Plan


def test_a_tuned_variant_takes_k1_and_b_from_a_stage_that_searches_as_it_does(plan_sparse):
    tune = {"k1": [1, 2], "b": [0.5], "measure": "nDCG@10", "queries": 50}
    plan = plan_sparse({"best": {"tuned": True, "rm3": {}}}, tune=tune)
    best = find_run(plan, "best")
    tuned = best.upstream["tuned"]
    assert (best.values["k1"], best.values["b"]) == (None, None)
    assert (tuned.kind, tuned.name) == ("tune_bm25", "best.dev")
    chosen_by = {"measure": "nDCG@10", "split": "dev", "queries": 50, "depth": 10}
    assert tuned.params == TuneBm25Params(k1=(1.0, 2.0), b=(0.5,), rm3=best.params.rm3, **chosen_by)
    assert tuned.upstream["lucene"] is best.upstream["lucene"]
    assert find_run(plan, "best", "dev").upstream["tuned"] is tuned


@pytest.mark.parametrize(
    ("measure", "depth"), [("IPrec@0.5", 100), ("IPrec@1.0", 100), ("AP", 100), ("RR@7", 7)]
)
def test_tuning_searches_as_deep_as_the_measure_looks(plan_sparse, measure, depth):
    # @ of IPrec is a recall: its precision may be that of any rank
    plan = plan_sparse({"best": {"tuned": True}}, tune={"measure": measure})
    assert plan.settings.depth.dev == 100
    assert find_run(plan, "best").upstream["tuned"].values["depth"] == depth


def test_tuning_asks_for_judgements_of_its_split(plan_sparse, configured, tmp_path):
    plan = plan_sparse({"best": {"tuned": True}}, tune={"split": "validation"})
    with pytest.raises(
        UserError,
        match="sparse.best: is tuned on split validation, but dataset pydocs has dev, test, tr",
    ):
        find_run(plan, "best")
    entry = {"of": "pydocs", "source": "dissimilar", "relevance": "answers"}
    config = configured("sparse", {"best": {"tuned": True}}) | {"datasets": {"asked": entry}}
    plan = Plan(config, ROOT)
    with pytest.raises(UserError, match="sparse.best.tuned needs qrels; dataset asked has answers"):
        plan.planner.run("best", "test", "here", "asked")
