"""The parts of a system that a search asks."""

from pathlib import Path

from tandem.contrib.demo.systems import list_fixed_runs
from tandem.extras.plan import FullPlan

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
    planner = FullPlan({**configured(), **own}, ROOT).planner
    run = planner.run("bm25+words", "test", "here")
    assert list_fixed_runs(run) == [run]
    assert list_fixed_runs(planner.run("bm25", "test", "here")) == []
