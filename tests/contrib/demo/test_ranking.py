"""What `tandem search` makes of several lists."""

import pytest

from tandem import ROOT
from tandem.contrib.demo.ranking import QueryRanking
from tandem.plan.plan import Plan


@pytest.mark.parametrize("normalize", ["min_max", "z_score"])
def test_ties_in_fused_lists_are_those_of_the_runs(configured, normalize):
    """In BM25's run b is the least bit above c, so that the fused run has it above what no list places higher."""
    entry = {"method": "weighted", "normalize": normalize, "weights": [1, 1]}
    config = configured("fusions", {"both": entry | {"of": ["bm25", "de_bm25neg"]}})
    run = Plan(config, ROOT).planner.run("both", "test", "here")
    lists = {"run.0": [("d", 2.0), ("b", 1.0), ("c", 1.0)], "run.1": [("e", 2.0), ("a", 1.0)]}

    class Fixed(QueryRanking):
        def ranked(self, member, depth):
            return next(lists[role] for role, stage in run.upstream.items() if stage is member)

    fused = Fixed(None, "a query")._fused(run)
    assert [doc for doc, _ in fused if doc not in "de"] == ["b", "a", "c"]
