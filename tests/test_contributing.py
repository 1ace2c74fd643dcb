"""CONTRIBUTING followed: its files are written into a copy of the tree, its tests pass there, its commands run."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from building import build_in

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
COPIED = (
    "Snakefile",
    "benchmarks",
    "config",
    "docs",
    "envs",
    "examples",
    "pyproject.toml",
    "tests",
    "workflow",
)
# The sentence before a block says where it goes: `<how> <path>`, words for the reader, a colon.
HOW = r"(?P<how>[Nn]ew file|At the end of|Above `(?P<above>.+?)` in|Below `(?P<below>.+?)` in)"
SENTENCE = HOW + r"\s+`(?P<path>[\w./]+)`[^`]*(?:`[^`\n]+`[^`]*)*?:"
BLOCKS = list(re.finditer(SENTENCE + r"\n\n```\w+\n(?P<text>.*?)```", PAGE, re.DOTALL))
TESTS = re.findall(r"`pytest (\S+) -k (\w+)`", PAGE)
REFERENCE, *COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]


def write(block, root):
    """Put a block of the page where its words say."""
    path, text = root / block["path"], block["text"]
    if block["how"].lower() == "new file":
        assert not path.exists(), path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    elif block["how"] == "At the end of":
        path.write_text(f"{path.read_text()}\n\n{text}")
    else:
        before, line, after = path.read_text().partition(f"\n{block['above'] or block['below']}\n")
        assert line, block[0]
        path.write_text(
            f"{before}\n{text}\n{line}{after}" if block["above"] else f"{before}{line}{text}{after}"
        )


def run(words, root):
    """A command in the copy of the tree; its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "PYTHONPATH": str(root / "workflow"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=root, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with every addition of the page."""
    root = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, root / name)
    for block in BLOCKS:
        write(block, root)
    run(["bash", "-c", REFERENCE], root)
    return root


def test_every_block_of_code_has_a_place():
    shell = PAGE.count("```sh\n")
    assert len(BLOCKS) + shell == len(re.findall(r"^```\w+$", PAGE, re.MULTILINE))
    assert shell == 2


def test_additions_are_written_as_the_tree_is(tree):
    files = sorted({block["path"] for block in BLOCKS if block["path"].endswith(".py")})
    run(["ruff", "check", "--no-cache", *files], tree)
    run(["ruff", "format", "--no-cache", "--check", *files], tree)


def test_the_tests_of_every_recipe_pass(tree, tmp_path):
    """Run together, since most of the time is that of imports."""
    written = {block["path"] for block in BLOCKS if block["path"].startswith("tests/")}
    paths, names = zip(*TESTS, strict=True)
    report = tmp_path / "report.xml"
    words = ["-q", "-p", "no:cacheprovider", "-k", " or ".join(names), f"--junitxml={report}"]
    run(
        [sys.executable, "-m", "pytest", *words, *sorted({*paths})],
        tree,
    )
    passed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in ElementTree.parse(report).iter("testcase")
    ]
    for path, name in TESTS:
        assert any(case.startswith(path.replace("/", ".")) and name in case for case in passed), (
            path,
            name,
        )
    for path in written:
        assert any(
            case.startswith(path.removesuffix(".py").replace("/", ".")) for case in passed
        ), path


def test_the_commands_run(tree):
    """Stages are made in one process before Snakemake is asked for them."""
    build_in(tree, "riverside/table1", "config/config.yaml", "riverside.yaml", root=tree)
    for command in COMMANDS:
        run(["bash", "-c", f"set -o pipefail; {command}"], tree)


def test_every_path_that_it_names_exists(tree):
    paths = re.findall(r"`((?:workflow|tests|config|benchmarks|examples)/[\w/.<>]+)`", PAGE)
    assert len(paths) > 25
    for path in paths:
        known = path.split("<")[0].rpartition("/")[0] if "<" in path else path
        assert (tree / known).exists(), path


def test_the_example_of_a_plugin_uses_every_call_that_the_page_names():
    example = (ROOT / "examples/plugin/my_ideas.py").read_text()
    calls = re.findall(r"`@?(\w+)\([^`]*\)` \(`(tandem[\w.]*)`\)", PAGE)
    assert len(calls) == 8
    for call, module in calls:
        assert hasattr(importlib.import_module(module), call), call
        # a distillation loss is registered as a loss is
        assert call == "distillation" or f"{call}(" in example, call
