"""A plugin's scorer re-ranks wherever a cross-encoder does; its name, options and source are in the run's key."""

from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.plan.plan import Plan
from tandem.stages import KINDS, Kind, Params

ROOT = Path(__file__).parents[2]
PLUGIN = """
from tandem.stages.retrieval import pair_scorer

@pair_scorer("planned_words")
def planned_words(query, passages, *, weight: float = 1.0):
    return [weight * len(set(query.split()) & set(text.split())) for text in passages]
"""


@pytest.fixture(scope="session")  # a process registers a name once, in whatever order tests come
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "scorers.py"
    path.write_text(PLUGIN)
    return str(path)


@pytest.fixture
def planned(configured, plugin):
    """`planned(entry, name)`: the plan of the default with an entry of `scorers`."""

    def make(entry, name="words"):
        return Plan({**configured(), "plugins": [plugin], "scorers": {name: entry}}, ROOT).planner

    return make


def test_a_scorer_reranks_without_a_model(planned, plugin):
    stage = planned({"scorer": "planned_words"}).run("bm25+words", "test", "here")
    assert (stage.kind, stage.name) == ("rerank", "bm25+words.test")
    assert stage.upstream.keys() == {"dataset", "run"}
    (used,) = stage.values["plugins"]
    assert used.startswith("scorers.py@")
    assert stage.execution["plugins"] == [plugin]
    assert stage.values["scorer"] == "planned_words"
    assert stage.values["options"] == {"weight": 1.0}


def test_its_options_decide_the_key(planned):
    keys = {
        planned({"scorer": "planned_words", "params": params}).run("bm25+words", "test", "here").key
        for params in ({}, {"weight": 1.0}, {"weight": 2.0})
    }
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("entry", "name", "message"),
    [
        (
            {"scorer": "planned_word"},
            "words",
            r"scorers\.words\.scorer: planned_word is not a pair .*planned_words",
        ),
        (
            {"scorer": "planned_words", "params": {"wieght": 1}},
            "words",
            r"scorers\.words\.params\.wieght",
        ),
        (
            {"scorer": "planned_words"},
            "ce_bm25neg",
            r"scorers\.ce_bm25neg has the name of models\.ce_bm25neg",
        ),
    ],
)
def test_a_wrong_entry_is_one_line(planned, entry, name, message):
    with pytest.raises(UserError, match=message):
        planned(entry, name).run(f"bm25+{name}", "test", "here")


class Bare(Params):
    """What a stage needs that searches nothing."""

    split: str = "test"


def test_a_stage_whose_parameters_a_run_does_not_fit_is_one_line(configured, monkeypatch):
    monkeypatch.setitem(KINDS, "bare", Kind("bare", print, Bare, in_runs=True))
    plan = Plan({**configured(), "runs": {"mine": {"stage": "bare", "of": "bm25"}}}, ROOT)
    with pytest.raises(
        UserError, match="^runs.mine.stage: bare has no parameter depth, as runs do"
    ):
        plan.planner.run("mine", "test", "here")
