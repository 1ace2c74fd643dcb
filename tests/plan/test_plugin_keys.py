"""The keys of stages have the plugins that they use, whichever registry these add to."""

import json
import subprocess
import sys

import pytest
from tiny_project import ROOT

PLUGIN = """
import torch

from tandem.config.training import BATCH_TERMS, OPTIMIZERS
from tandem.stages.evaluation import MEASURE_PROVIDERS


def make_sgd(groups, lr):
    return torch.optim.SGD(groups, lr=lr)


OPTIMIZERS["plain_sgd"] = make_sgd
BATCH_TERMS["regularise"] = BATCH_TERMS["regularise"]
MEASURE_PROVIDERS["mine"] = "contrib.measures.review_measures:Provider"
"""
SCRIPT = """
import json
import sys
from pathlib import Path

import yaml

from tandem.extras.plan import FullPlan

root, plugin, train = sys.argv[1:]
config = yaml.safe_load((Path(root) / "config/config.yaml").read_text())
config["plugins"] = [plugin]
config["models"]["de_bm25neg"]["train"] |= json.loads(train)
stages = FullPlan(config, Path(root)).stages.values()
chosen = {stage.kind: stage for stage in stages if stage.name.startswith("de_bm25neg")}
print(json.dumps({kind: [stage.key, stage.values.get("plugins")] for kind, stage in chosen.items()}))
"""


@pytest.fixture
def plan_with(tmp_path):
    """`plan_with(source, train)`: key and plugins of the dual encoder's stages by kind, planned in another process."""

    def plan(source, train):
        path = tmp_path / "mine.py"
        path.write_text(source)
        arguments = [str(ROOT), str(path), json.dumps(train)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    return plan


@pytest.mark.parametrize(
    "train",
    [{"optimizer": "plain_sgd"}, {"regularise": {"passage": {"flops": 0.1}}}],
    ids=["named by a value", "named by a key"],
)
def test_a_training_that_uses_a_plugin_is_another_when_it_changes(plan_with, train):
    before, after = (plan_with(PLUGIN + text, train) for text in ("", "# changed"))
    for planned in (before, after):
        (label,) = planned["model"][1]
        assert label.startswith("mine.py@")
    assert before["model"] != after["model"]
    unused = plan_with(PLUGIN, {})
    assert unused["model"][1] is None


def test_measures_of_a_plugin_are_in_the_keys_of_scores_alone(plan_with):
    planned = plan_with(PLUGIN, {})
    assert planned["score"][1][0].startswith("mine.py@")
    assert planned["model"][1] is None


PLAN_DATASET = """
import json
import sys
from pathlib import Path

import yaml

from tandem.errors import UserError
from tandem.extras.plan import FullPlan

root, plugin, entry = sys.argv[1:]
config = yaml.safe_load((Path(root) / "config/config.yaml").read_text())
config |= {"plugins": [plugin], "dataset": "mine", "datasets": {"mine": json.loads(entry)}}
try:
    print(FullPlan(config, Path(root)).planner.dataset("mine").key)
except UserError as error:
    print(error)
"""
EXAMPLE = ROOT / "examples/plugin/my_ideas.py"


@pytest.fixture
def plan_table(tmp_path):
    """`plan_table(plugin, **keys)`: the key of a dataset of the example's format, or the error, in another process."""

    def plan(plugin=EXAMPLE, **keys):
        entry = {"source": "questions_csv", "table": "questions.csv"} | keys
        arguments = [str(ROOT), str(plugin), json.dumps(entry)]
        done = subprocess.run(
            [sys.executable, "-c", PLAN_DATASET, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return plan


def test_a_dataset_of_a_plugins_format_is_another_when_its_file_changes(plan_table, tmp_path):
    table = tmp_path / "questions.csv"
    table.write_text("question,answer,split\nwhere?,here,test\n")
    before = plan_table(path=str(tmp_path))
    (tmp_path / "notes.txt").write_text("not read")
    assert plan_table(path=str(tmp_path)) == before
    table.write_text("question,answer,split\nwhere?,there,test\n")
    after = plan_table(path=str(tmp_path))
    assert after.startswith("mine-")
    assert after != before


@pytest.mark.parametrize("reads_files", ["", "    reads_files = False\n"])
def test_a_file_without_a_path_is_refused_since_no_key_would_have_it(
    plan_table, tmp_path, reads_files
):
    plugin = tmp_path / "my_ideas.py"
    named = '    file_keys = ("table",)'
    plugin.write_text(EXAMPLE.read_text().replace(named, reads_files + named))
    assert plan_table(plugin) == (
        "datasets.mine.path is missing; name the folder that holds its files"
    )
