"""Each package of `contrib/` may be deleted: the rest plans the default, to the same keys."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tandem import ROOT

PLAN = """
import json, sys
from tandem import ROOT
from tandem.commands import COMMANDS
from tandem.config.datasets import DATASET_ENTRIES
from tandem.config.losses import supervision
from tandem.config.merging import gathered
from tandem.config.representations import REPRESENTATIONS
from tandem.config.retrieval import search_engine
from tandem.config.table_layouts import TABLE_FORMATS, TABLE_PARTS
from tandem.config.training import ADAPTERS, FITS, OPTIMIZERS
from tandem.extras.plan import FullPlan
from tandem.plugins import load_contrib
from tandem.stages import KINDS
from tandem.stages.data import DATASET_OBSERVERS
from tandem.stages.evaluation import MEASURE_PROVIDERS
from tandem.stages.training import PART_NOTES

plan = FullPlan(gathered([], ROOT), ROOT)
plan.check("all")
print(json.dumps({
    "root": str(ROOT),
    "contrib": [package.name for package in load_contrib()],
    "stages": sorted(stage.folder for stage in plan.tables.requested_scores()),
    "kinds": list(KINDS),
    "commands": list(COMMANDS),
    "sources": list(DATASET_ENTRIES),
    "representations": list(REPRESENTATIONS),
    "notes": list(PART_NOTES),
    "losses": list(supervision),
    "observers": list(DATASET_OBSERVERS),
    "measures": list(MEASURE_PROVIDERS),
    "formats": [*TABLE_FORMATS, *TABLE_PARTS],
    "trainings": [*FITS, *OPTIMIZERS],
    "engines": list(search_engine),
    "adapters": list(ADAPTERS),
    "heavy": sorted({"torch", "faiss", "jnius", "transformers"} & sys.modules.keys()),
}))
"""
PACKAGES = sorted(
    path.parent.name for path in (ROOT / "workflow/tandem/contrib").glob("*/plugin.py")
)


def link_tree(root, without):
    """Make a copy of the tree by links, with a folder `contrib/` of its own that lacks some packages."""
    library = root / "workflow/tandem"
    library.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.name not in ("workflow", "results", ".git"):
            (root / path.name).symlink_to(path)
    for path in (ROOT / "workflow").iterdir():
        if path.name != library.name:
            (root / "workflow" / path.name).symlink_to(path)
    for path in (ROOT / "workflow/tandem").iterdir():
        if path.name != "contrib":
            (library / path.name).symlink_to(path)
    if without != PACKAGES:
        (library / "contrib").mkdir()
        for path in (ROOT / "workflow/tandem/contrib").iterdir():
            if path.name not in without:
                (library / "contrib" / path.name).symlink_to(path)


def plan_default(root):
    """What the code of a tree plans for the default, in a process of its own."""
    line = [sys.executable, "-c", PLAN]
    done = subprocess.run(
        line,
        cwd=root,
        env={"PYTHONPATH": f"{root}/workflow", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "tree"
    link_tree(root, [])
    return plan_default(root)


@pytest.mark.parametrize("without", [*([name] for name in PACKAGES), PACKAGES], ids="+".join)
def test_without_a_package_the_rest_plans_the_default(without, whole, tmp_path):
    link_tree(tmp_path / "tree", without)
    rest = plan_default(tmp_path / "tree")
    assert (rest["root"], rest["heavy"]) == (str(tmp_path / "tree"), [])
    assert rest["contrib"] == [name for name in whole["contrib"] if name not in without]
    assert rest["stages"] == whole["stages"] != []
    declared = [
        name
        for group in whole.keys() - {"root", "contrib", "stages", "heavy"}
        for name in whole[group]
        if name not in rest[group]
    ]
    assert declared, "a package adds something to a registry"


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_described(name):
    text = Path(ROOT, "workflow/tandem/contrib", name, "README.md").read_text()
    assert text.startswith("# ")
    assert f"pytest tests/contrib/{name}" in text


def test_no_other_test_needs_a_package():
    imports = re.compile(r"^\s*(?:from|import) tandem\.contrib\b", re.MULTILINE)
    others = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if "contrib" not in path.relative_to(ROOT / "tests").parts
    ]
    assert [str(path) for path in others if imports.search(path.read_text())] == []
