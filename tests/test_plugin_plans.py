"""What a plugin lacks, or returns, of the stages that a configuration needs is one line while it is planned."""

import subprocess
import sys

import pytest
from tiny_project import ROOT

PLAN = """
import sys
from pathlib import Path

import yaml

from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tiny_project import find_run

root, system = sys.argv[1:]
config = yaml.safe_load((Path(root) / "config/config.yaml").read_text())
config |= {"plugins": ["mine.py"], "indexes": {"small": {"type": "cut"}}}
config["tradeoffs"] = {"model": "de_bm25neg", "indexes": ["small"]}
plan = FullPlan(config, Path(root))
try:
    stage = plan.view(system).stage() if system == "tradeoffs" else find_run(plan, system)
    print(stage.kind)
except UserError as error:
    print(error)
"""
INDEX = """
from typing import ClassVar, Literal
from tandem.config.indexes import Index, register_index
from tandem.plan.context import plans_index
from tandem.stages import Kind, register_stage
from tandem.stages.retrieval import RunParams

class Cut(Index):
    built_by: ClassVar[str] = "cut_index"
    searched_by: ClassVar[str] = "cut_search"
    type: Literal["cut"]

register_index(Cut)
register_stage(Kind("cut_index", print, holds="index"), in_runs=False)
register_stage(Kind("cut_search", print, RunParams), in_runs=False)

@plans_index("cut_index")
def plan_cut(ctx, passages, name, data, search):
    return ctx.stage("cut_index", data, name, {}, {"passages": passages}, {})
"""


@pytest.fixture
def plan(tmp_path):
    """`plan(*change)`: the kind of stage of a run through the index, or the error, in a process of its own."""

    def plan_run(old="", new="", system="de_bm25neg@small"):
        (tmp_path / "mine.py").write_text(INDEX.replace(old, new))
        done = subprocess.run(
            [sys.executable, "-c", PLAN, str(ROOT), system],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": f"{ROOT / 'workflow'}:{ROOT / 'tests'}"},
        )
        return done.stdout.strip() or done.stderr

    return plan_run


def test_a_type_of_indexes_is_searched_by_its_own_stage(plan):
    assert plan() == "cut_search"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '= "cut_search"',
            '= "cut_serch"',
            "indexes.small: searched_by of Cut is cut_serch, which is not a stage; did you mean cut_search?",
        ),
        (
            '@plans_index("cut_index")',
            "",
            'index cut_index is not registered: no plugin has @plans_index("cut_index")',
        ),
        (
            "return ctx.stage",
            "ctx.stage",
            "mine.py: plan_cut returned None for cut_index; a stage is needed, as ctx.stage makes it",
        ),
    ],
)
def test_what_the_index_lacks_is_one_line(plan, old, new, message):
    assert plan(old, new) == message


def test_an_index_that_its_own_stage_alone_reads_is_not_compared(plan):
    """The comparison opened its files as FAISS's, when all had been encoded."""
    assert plan(system="tradeoffs").startswith(
        "tradeoffs.indexes: small is of type cut, whose index its own stage alone reads; name indexes of the types flat"
    )
