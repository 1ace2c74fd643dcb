"""A pipeline is a run like any other: chosen on dev from the runs that it names, at the depths that it tries."""

from pathlib import Path

import pytest

from tandem.config.loading import load_settings
from tandem.contrib.pipelines.options import ChoosePipelineParams, PipelineParams
from tandem.errors import Unavailable, UserError
from tandem.plan.graph import Stages
from tandem.plan.plan import Plan, check_all, check_measures
from tandem.plan.planner import Planner

ROOT = Path(__file__).parents[3]
BEST = {"of": ["bm25", "de_bm25neg+ce_deneg", "bm25+ce_bm25neg"]}


@pytest.fixture
def settings(configured):
    """`settings(entry, **keys)`: the default's settings with a pipeline `best`."""
    return lambda entry=BEST, **keys: load_settings(
        {**configured(), "pipelines": {"best": entry}, **keys}, ROOT
    )


@pytest.fixture
def chosen(settings):
    """`chosen(entry, split)`: the stage of the run of a pipeline."""
    return lambda entry=BEST, split="test": Planner(settings(entry), Stages()).run(
        "best", split, "here"
    )


def test_a_pipeline_reads_its_runs_on_dev_and_on_its_own_split(chosen):
    stage = chosen()
    assert (stage.kind, stage.name, stage.params) == (
        "pipeline",
        "best.test",
        PipelineParams(split="test", depth=1000),
    )
    names = {role: above.name for role, above in stage.upstream.items()}
    assert names == {
        "dataset": "pydocs",
        "run.0": "bm25.test",
        "run.1": "de_bm25neg.test",  # a first stage, which is a system too
        "run.2": "de_bm25neg+ce_deneg.test",
        "first.2": "de_bm25neg.test",
        "run.3": "bm25+ce_bm25neg.test",
        "first.3": "bm25.test",
        "chosen": "best.dev",
    }
    choice = stage.upstream["chosen"]
    assert choice.kind == "choose_pipeline"
    assert choice.params == ChoosePipelineParams(
        split="dev", measure="nDCG@10", depth=100, depths=(2, 5, 10)
    )
    assert {role: above.name for role, above in choice.upstream.items()} == {
        role: name.replace(".test", ".dev") for role, name in names.items() if role != "chosen"
    }


def test_down_to_rerank_depth_nothing_is_scored_that_tables_do_not_score(chosen, settings):
    planner = Planner(settings(), Stages())
    usual = planner.run("bm25+ce_bm25neg", "test", "here")
    assert planner.run("best", "test", "here").upstream["run.3"] is usual
    deeper = chosen(BEST | {"depths": [50, 20]})
    assert deeper.upstream["run.3"].values["depth"] == 50
    assert deeper.upstream["chosen"].values["depths"] == [20, 50]


def test_a_pipeline_stands_wherever_a_run_does(settings, configured, tmp_path):
    layout = tmp_path / "mine.yaml"
    layout.write_text(
        "title: T\nrows:\n- {system: B, run: best}\n- {system: C, run: best+ce_deneg}\n"
    )
    fusions = {"both": {"of": ["best", "bm25"]}}
    keys = {
        "pipelines": {"best": BEST},
        "tables": [str(layout)],
        "systems": ["both"],
        "fusions": fusions,
    }
    plan = Plan({**configured(), **keys}, ROOT)
    runs = {row.system: stage.upstream["run"] for row, stage in plan.tables["mine"]}
    assert (runs["B"].kind, runs["C"].kind) == ("pipeline", "rerank")
    assert runs["C"].upstream["run"] is runs["B"]


def test_a_layout_brings_its_own_pipeline(configured, tmp_path):
    layout = tmp_path / "mine.yaml"
    row = (
        "{system: B, run: best, with: {pipelines.best: {of: [bm25, bm25+ce_bm25neg], depths: [2]}}}"
    )
    layout.write_text(f"title: T\nrows:\n- {row}\n")
    [(_, score)] = Plan({**configured(), "tables": [str(layout)]}, ROOT).tables["mine"]
    assert score.upstream["run"].upstream["chosen"].values["depths"] == [2]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"of": ["bm52"]}, "pipelines.best.of: bm52 is not a model"),
        ({"of": ["bm25", "best"]}, "pipelines form a cycle: best -> best"),
        (
            BEST | {"depths": [200]},
            "pipelines.best.depths is 200, but runs on dev are 100 deep; raise depth.dev",
        ),
        (
            BEST | {"measure": "R@1000"},
            "pipelines.best.measure: R@1000 looks deeper than the 100 passages of a query",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_key(settings, entry, line):
    with pytest.raises(UserError) as error:
        check_all(settings(entry))
    assert str(error.value).startswith(line)


def test_names_that_are_taken_and_unknown_measures_are_refused(settings):
    with pytest.raises(UserError, match="pipelines.best has the name of "):
        check_all(settings(fusions={"best": {"of": ["bm25", "de_bm25neg"]}}))
    [line] = check_measures(settings(BEST | {"measure": "nDGC@10"}))
    assert line.startswith("pipelines.best.measure: nDGC@10 is not a measure")


def test_answers_choose_nothing(settings):
    entry = {
        "source": "files",
        "path": str(ROOT),
        "relevance": "answers",
        "queries": {"dev": "a", "test": "b"},
    }
    planner = Planner(
        settings({"of": ["bm25"]}, dataset="mine", datasets={"mine": entry}), Stages()
    )
    with pytest.raises(
        Unavailable,
        match="pipelines.best: a system is chosen by qrels, but dataset mine has answers",
    ):
        planner.run("best", "test", "here")
