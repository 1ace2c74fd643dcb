"""Kinds of stages that a plugin registers: their commands, and mistakes in a declaration; plugins behind a name."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from tandem.errors import UserError
from tandem.stages import (
    KINDS,
    Kind,
    declaration,
    holding,
    is_stage,
    kind_of_command,
    register_stage,
    rule_names,
    shard_commands,
)
from tandem.store.job import load, read_job


@pytest.fixture
def kinds():
    """`KINDS`, which afterwards is as it was."""
    before = dict(KINDS)
    yield KINDS
    KINDS.clear()
    KINDS.update(before)


def share(job):
    """A part of a stage's work."""


def test_a_plugins_stage_has_the_commands_of_its_shards(kinds):
    kind = register_stage(Kind("half", share, shard=share, train=share))
    commands = ("half", "half-shard", "half-train")
    assert [kind_of_command(command) for command in commands] == [kind] * 3
    assert shard_commands()["half-shard"] == (kind, share)
    register_stage(Kind("whole", share))
    assert [is_stage(f"whole{part}") for part in ("", "-shard", "-train")] == [True, False, False]


def test_a_box_that_the_report_does_not_draw_is_one_line(kinds):
    with pytest.raises(
        UserError, match="^stage half: its box is Retreival; did you mean Retrieval[?]$"
    ):
        register_stage(Kind("half", share, box="Retreival"))
    assert "half" not in kinds
    assert register_stage(Kind("half", share)).box == "Scores"


class Plain(BaseModel):
    """Drops keys that it does not know: the plugin's digest."""


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Kind("train", share), "stage train is registered twice"),  # the rule of the kind `model`
        (Kind("my stage", share), "stage my stage: allowed in its name are"),
        (
            Kind("half", share, Plain),
            "stage half: its params are Plain, which is not a subclass of Params",
        ),
    ],
)
def test_a_declaration_that_snakemake_or_a_key_could_not_carry(kinds, kind, line):
    with pytest.raises(UserError, match=f"^{line}"):
        register_stage(kind)
    assert kind.name not in kinds


def test_an_index_of_a_plugin_is_one_for_costs(kinds):
    register_stage(Kind("half", share, holds="index"))
    assert "half" in holding("index")


PLUGINS = {
    "costs.py": "from tandem.extras.estimate.resources import cost\ncost('twice')(print)\n",
    "negatives.py": "from tandem.stages.negatives import negatives\nnegatives('twice')(print)\n",
    "scorers.py": "from tandem.stages.retrieval import pair_scorer\npair_scorer('twice')(print)\n",
}
LOAD = """
import sys
from tandem.plugins import load_plugins, plugins_behind
load_plugins(sys.argv[1:])
print(*(plugin.path.name for plugin in plugins_behind(["once", "twice"])))
"""


def test_a_name_that_two_plugins_use_stands_for_both_but_not_for_a_cost(tmp_path):
    """Else a stage would keep its key when the one that is not named changes."""
    for name, source in PLUGINS.items():
        (tmp_path / name).write_text(source)
    for order in (sorted(PLUGINS), sorted(PLUGINS, reverse=True)):
        line = [sys.executable, "-c", LOAD, *(str(tmp_path / name) for name in order)]
        assert (
            subprocess.run(line, capture_output=True, text=True).stdout
            == "negatives.py scorers.py\n"
        )


def test_no_rule_has_the_name_of_another_kind():
    assert len(rule_names()) == len(KINDS)
    assert {
        kind.rule_name for kind in KINDS.values() if kind.rule
    } == rule_names().keys() - KINDS.keys()


def test_an_unknown_kind_has_a_declaration_of_defaults():
    """A report may show the stage of a plugin that is not loaded."""
    unknown = declaration("of_a_plugin")
    assert (unknown.does, unknown.holds, unknown.scoring.by) == ("of a plugin", "other", "")


def test_a_stage_takes_one_thread_unless_it_says_otherwise():
    stage = SimpleNamespace(values={})
    assert KINDS["score"].takes_one_thread(stage)
    assert not KINDS["retrieve"].takes_one_thread(stage)


def test_an_input_that_a_command_line_lacks_is_told_by_its_flag(dataset, tmp_path):
    """It was a KeyError, in whichever function reads it."""
    out = str(tmp_path / "errors/bm25.test-0123456789/stage.json")
    words = ["--in.dataset", str(dataset.folder), "--out", out]
    words += ["--params.split", "test", "--params.top", "5", "--params.queries", "3"]
    job = read_job("errors", words)
    assert job.inputs["dataset"].key == dataset.key
    assert job.inputs.get("match") is None
    with pytest.raises(UserError, match=r"^errors: --in\.run is missing; given is --in\.dataset$"):
        load(KINDS["errors"].run)(job)
