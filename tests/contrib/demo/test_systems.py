"""The parts of a system that a search asks."""

from pathlib import Path

import pytest

from tandem.contrib.demo.systems import list_fixed_runs, resolve_system
from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[3]
PLUGIN = """
from tandem.stages.retrieval import pair_scorer

@pair_scorer("counted_words")
def count_words(query, passages):
    return [len(text.split()) for text in passages]
"""


def test_a_plugins_scorer_answers_no_new_query(configured, tmp_path):
    plugin = tmp_path / "scorers.py"
    plugin.write_text(PLUGIN)
    own = {"plugins": [str(plugin)], "scorers": {"words": {"scorer": "counted_words"}}}
    planner = Plan({**configured(), **own}, ROOT).planner
    run = planner.run("bm25+words", "test", "here")
    assert list_fixed_runs(run) == [run]
    assert list_fixed_runs(planner.run("bm25", "test", "here")) == []


@pytest.mark.parametrize(
    ("system", "stage"),
    [
        ("given", "given"),
        ("splade@lucene", "search_impacts"),
        ("splade@seismic", "search_seismic"),
    ],
)
def test_what_is_a_run_alone_answers_no_new_query(configured, system, stage):
    config = configured("depth.train", 1000)
    plan = Plan({**config, "recipes": [*config["recipes"], "splade"]}, ROOT)
    with pytest.raises(UserError) as error:
        resolve_system(plan, system)
    assert str(error.value) == (
        f"{system} is a run of the stage {stage}, which answers no new query; name another system"
    )
