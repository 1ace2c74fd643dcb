"""Plugins of installed distributions, which a configuration names by their entry points."""

import json
import os
import re
import subprocess
import sys

import pytest
from messages import unknown_key

from tandem.commands import COMMANDS, RESULTS, Command, register_command
from tandem.config.settings import register_section
from tandem.errors import UserError
from tandem.plugins import load_plugins

LOSS = """
from tandem.config.losses import supervision

from bees.numbers import FACTOR


@supervision("bee")
def bee(scores, mask, *, factor: float = FACTOR):
    return scores.sum() * factor
"""
STAGE = "from tandem.stages import Kind, register_stage\nregister_stage(Kind('hive', print))\n"
COMMAND = """
from tandem.commands import RESULTS, Command, register_command


def count_honey(*, jars: int = 1) -> None:
    \"\"\"Print how much honey that is.

    Args:
        jars: full ones.
    \"\"\"
    print(f"{jars * 500} g")


register_command(Command("honey", count_honey, RESULTS, "How much honey that is."))
"""
KEY = """
from typing import Literal

from pydantic import Field

from tandem.config.base import Section
from tandem.config.datasets import Dataset, register_source
from tandem.config.encoders import StartBlock, register_start
from tandem.config.settings import Block, register_section


class Honey(Section):
    \"\"\"How much honey there is.\"\"\"

    jars: int = Field(1, ge=1, description="full ones")


class Comb(Section):
    \"\"\"Cells of wax.\"\"\"

    sort: str
    cells: int = Field(1, ge=1, description="how many")


class Built(Comb):
    \"\"\"A comb that bees have built.\"\"\"

    sort: Literal["built"]


class Bought(Comb):
    \"\"\"A comb with a price.\"\"\"

    sort: Literal["bought"]
    price: float = Field(description="in euros")


class Hum(Dataset):
    \"\"\"What bees say.\"\"\"

    reads = ("hum.txt",)
    source: Literal["hum"]
    volume: int = Field(1, ge=1, description="how loud")


register_section("honey", Honey, Honey(), "how much honey there is")
register_section("combs", dict[str, Comb], {}, "combs", Block("sort", {"built": Built, "bought": Bought}))
register_start("combs", StartBlock("comb", pooling="cls"))
register_source(Hum)
"""
TARGET = """
from tandem.errors import UserError
from tandem.plan.context import plans_view
from tandem.plan.plan import View


@plans_view("honey")
class HoneyView(View):
    \"\"\"A page about honey.\"\"\"

    rules = ("honey",)

    def targets(self):
        return {"honey": [self.count]}

    def count(self):
        if self.plan.settings.honey.jars > 9:
            raise UserError("honey.jars is more than there is")
"""
CONFIGURED = """
import json, sys
from tandem import ROOT
from tandem.config.merging import gathered, merged
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
try:
    plan = FullPlan(merged(gathered([], ROOT), json.loads(sys.argv[1])), ROOT)
    plan.check(sys.argv[2])
    variant = plan.planners.of({"honey.jars": 5}).settings
    print(plan.settings.honey.jars, variant.honey.jars, *sorted(plan.targets().keys() & {"honey"}))
except UserError as error:
    print(error)
"""
PLAN = """
import json
from tandem import ROOT
from tandem.config.merging import gathered, merged
from tandem.extras.plan import FullPlan
models = {"de_bm25neg": {"train": {"loss": "bee"}}}
plan = FullPlan(merged(gathered([], ROOT), {"plugins": ["bees"], "models": models}), ROOT)
plan.tables.files()
stages = [stage for stage in plan.stages.values() if "plugins" in stage.values]
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
    (package / "ideas.py").write_text(LOSS + STAGE + COMMAND + KEY + TARGET)
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


def test_its_stage_is_run_by_who_names_it(installed):
    assert installed("-m", "tandem", "hive", "--help").stdout.startswith("usage: tandem hive")
    done = installed("-m", "tandem", "hive", "--out", "hive/hive-0123456789/stage.json")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith("tandem hive: is a stage of an installed plugin")) == (
        1,
        True,
    )


def test_its_command_is_one_as_others(installed):
    assert installed("-m", "tandem", "honey", "--jars", "3").stdout == "1500 g\n"
    page = installed("-m", "tandem", "honey", "--help").stdout
    assert "Print how much honey that is." in page
    assert "--jars INT" in page
    done = installed("-m", "tandem", "honey", "--jars", "many")
    assert done.returncode == 1
    assert done.stderr.startswith("tandem honey: Invalid value for --jars")


def test_one_that_does_not_load_leaves_the_others_commands(installed, tmp_path):
    metadata = tmp_path / "wasps-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wasps\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tandem.plugins]\nwasps = wasps\n")
    (tmp_path / "wasps.py").write_text("\n1 / 0\n")
    note = "tandem: plugins: wasps:2: ZeroDivisionError: division by zero"

    done = installed("-m", "tandem", "honey")
    assert (done.returncode, done.stdout, done.stderr) == (0, "500 g\n", "")

    done = installed("-m", "tandem", "hony")
    mistake = "tandem: hony is not a command; did you mean honey?"
    assert (done.returncode, done.stderr.splitlines()) == (2, [note, mistake])

    done = installed("-m", "tandem", "--help")
    assert (done.returncode, done.stderr) == (0, f"{note}\n")
    assert "How much honey that is." in done.stdout


def test_a_name_that_two_packages_offer_is_one_line(installed, tmp_path):
    metadata = tmp_path / "wasps-2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wasps\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text("[tandem.plugins]\nbees = wasps.ideas\n")
    done = installed("-c", "from tandem.plugins import load_plugins; load_plugins(['bees'])")
    assert done.stderr.splitlines()[-1] == (
        "tandem.errors.UserError: plugins: bees is offered by bees (bees.ideas) and by wasps (wasps.ideas); "
        "uninstall all but one"
    )


def test_a_package_without_init_is_one_line(installed, tmp_path):
    (tmp_path / "bees/__init__.py").unlink()
    done = installed("-c", "from tandem.plugins import load_plugins; load_plugins(['bees'])")
    line = done.stderr.splitlines()[-1]
    assert "plugins: bees: its module bees.ideas is in a package without __init__.py" in line


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"plugins": ["bees"], "honey": {"jars": 3}}, "3 5 honey"),
        ({"plugins": ["bees"]}, "1 5 honey"),
        ({"plugins": ["bees"], "honey": {"jars": 0}}, "honey.jars is 0; allowed: ≥ 1"),
        ({"plugins": ["bees"], "hony": {}}, unknown_key("hony", "honey")),
        ({"plugins": ["bees"], "honey": {"jars": 10}}, "honey.jars is more than there is"),
        ({"honey": {}}, unknown_key("honey")),
        ({"plugins": ["bees"], "combs": {"first": {"sort": "bought", "price": 2.5}}}, "1 5 honey"),
        (
            {"plugins": ["bees"], "combs": {"first": {"sort": "bough"}}},
            "combs.first.sort is 'bough'",
        ),
        (
            {"plugins": ["bees"], "combs": {"first": {"sort": "bought"}}},
            "combs.first.price is missing",
        ),
        (
            {
                "plugins": ["bees"],
                "combs": {"first": {"sort": "built"}},
                "models": {"de_bm25neg": {"init": "first"}},
            },
            "models.de_bm25neg.init is first, a comb, which cross-encoders alone start from",
        ),
        (
            {"plugins": ["bees"], "datasets": {"buzz": {"source": "hum", "volume": 0}}},
            "datasets.buzz.volume is 0",
        ),
    ],
)
def test_it_has_keys_and_a_target(installed, config, line):
    done = installed("-c", CONFIGURED, json.dumps(config), "honey")
    assert done.returncode == 0, done.stderr
    assert re.match(line, done.stdout), done.stdout


def test_its_rules_are_the_snakefiles(installed, tmp_path):
    (tmp_path / "bees/rules.smk").write_text("rule honey:\n    shell: 'true'\n")
    code = "from tandem.plugins import find_rules, load_plugins; before = find_rules(); load_plugins(['bees'])\n"
    done = installed("-c", code + "print(*{*find_rules()} - {*before})")
    assert done.stdout.strip() == str(tmp_path / "bees/rules.smk"), done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("models", "key models is registered twice"),
        ("two words", "key two words"),
        ("copy", "key copy"),
    ],
)
def test_a_key_that_cannot_be_added_is_one_line(name, message):
    with pytest.raises(UserError, match=message):
        register_section(name, dict[str, str], {}, "a test's")


def test_a_file_has_commands_too(tmp_path):
    (tmp_path / "my.py").write_text(COMMAND)
    line = [sys.executable, "-m", "tandem", "honey", "--run.plugins", '["my.py"]', "--jars", "2"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "1000 g\n", done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command("gc", print, RESULTS), "command gc is registered twice"),
        (Command("search", print, RESULTS), "command search is registered twice"),
        (Command("bm25-shard", print, RESULTS), "command bm25-shard is registered twice"),
        (Command("two words", print, RESULTS), "command two words: allowed in its name are"),
        (Command("honey", print, "Look at result"), "did you mean Look at results"),
    ],
)
def test_a_command_that_cannot_be_added_is_one_line(command, message):
    before = list(COMMANDS)
    with pytest.raises(UserError, match=message):
        register_command(command)
    assert list(COMMANDS) == before


def test_a_name_that_nobody_offers_is_one_line():
    with pytest.raises(
        UserError, match=r"plugins: 'wasps' is not known; allowed: Python files, installed plugins"
    ):
        load_plugins(["wasps"])


def test_a_plugin_that_leaves_while_it_is_read_is_one_line(tmp_path):
    """Else every command would end there, as if all were well."""
    plugin = tmp_path / "script.py"
    plugin.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(UserError, match=r"plugins: .*script.py:2: SystemExit"):
        load_plugins([str(plugin)])
