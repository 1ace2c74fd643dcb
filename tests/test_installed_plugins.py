"""Plugins of installed distributions, which a configuration names by their entry points."""

import json
import os
import subprocess
import sys

import pytest

from tandem.errors import UserError
from tandem.registry import load_plugins

LOSS = """
from tandem.config.losses import supervision

from bees.numbers import FACTOR


@supervision("bee")
def bee(scores, mask, *, factor: float = FACTOR):
    return scores.sum() * factor
"""
STAGE = "from tandem.stages import Kind, register_stage\nregister_stage(Kind('hive', print))\n"
PLAN = """
import json
from tandem import ROOT
from tandem.config.merging import gathered, merged
from tandem.extras.plan import FullPlan
models = {"de_bm25neg": {"train": {"loss": "bee"}}}
plan = FullPlan(merged(gathered([], ROOT), {"plugins": ["bees"], "models": models}), ROOT)
plan.tables.files()
stages = [stage for stage in plan.stages.values() if "plugins" in stage.execution]
print(json.dumps([[stage.kind, stage.values["plugins"], stage.execution["plugins"]] for stage in stages]))
"""


@pytest.fixture
def installed(tmp_path):
    """`installed(*words)`: output of Python where a package `bees` is installed, whose plugin is its `ideas`."""
    package, metadata = tmp_path / "bees", tmp_path / "bees-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bees\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tandem.plugins]\nbees = bees.ideas\n")
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text("FACTOR = 2.0\n")
    (package / "ideas.py").write_text(LOSS + STAGE)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*words):
        line, environment = [sys.executable, *words], os.environ | {"PYTHONPATH": path}
        return subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_it_is_part_of_the_key_of_what_uses_it_with_all_its_modules(installed, tmp_path):
    def planned():
        done = installed("-c", PLAN)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (kind, (before,), source), *_ = planned()
    assert (kind, before.partition("@")[0], source) == ("model", "bees", ["bees"])
    (tmp_path / "bees/numbers.py").write_text("FACTOR = 3.0\n")
    (_, (after,), _), *_ = planned()
    assert after != before


def test_a_job_loads_it_by_its_name(installed):
    done = installed("-m", "tandem", "hive", "--help", "--run.plugins", '["bees"]')
    assert done.stdout.startswith("usage: tandem hive"), done.stderr


def test_a_name_that_nobody_offers_is_one_line():
    with pytest.raises(UserError, match=r"plugins: 'wasps' is not known; allowed: Python files, installed plugins"):
        load_plugins(["wasps"])
