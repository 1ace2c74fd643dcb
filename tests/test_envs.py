"""conda's environments hold the lock file's versions, and what the stages and commands of their rules import."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from tiny_project import snakemake

from tandem.commands import COMMANDS, STEPS
from tandem.stages import KINDS

ROOT = Path(__file__).parents[1]
ENVS = sorted((ROOT / "envs").glob("*.yaml"))


def read_lock(name):
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "envs" / name).read_text(), re.M))


def plain(name):
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked(name):
    """The packages that a list asks for."""
    lines = (ROOT / "envs" / name).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def lock():
    return read_lock("requirements.lock")


def test_everything_asked_for_is_pinned_once(lock):
    run, tests = (set(map(plain, pins)) for pins in (lock, read_lock("requirements-tests.lock")))
    assert set(map(plain, asked("requirements.in"))) <= run
    assert set(map(plain, asked("requirements-tests.in"))) <= run | tests
    assert run & tests == set()


def needed(names):
    """Packages, what they need, and what that needs in turn, as the installed packages say."""
    waiting, visited = list(names), set()
    while waiting:
        line = waiting.pop()
        if line in visited:
            continue
        visited.add(line)
        extras = ["", *Requirement(line).extras]
        try:
            lines = [Requirement(it) for it in distribution(Requirement(line).name).requires or ()]
        except PackageNotFoundError:  # faiss-cpu, where the machine has a GPU
            continue
        waiting += [str(it) for it in lines if not it.marker or any(it.marker.evaluate({"extra": e}) for e in extras)]
    return {plain(Requirement(line).name) for line in visited}


def test_a_run_installs_what_it_needs_and_nothing_of_the_tests(lock):
    run = needed(asked("requirements.in"))
    assert run <= set(map(plain, lock))
    assert needed(asked("requirements-tests.in")) - run <= set(map(plain, read_lock("requirements-tests.lock")))
    if sys.version_info[:2] == (3, 11):  # which the lock files are made with; others need less
        assert set(map(plain, lock)) == run


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)
def test_an_environment_has_the_locked_versions(path, lock):
    (pip,) = [item["pip"] for item in yaml.safe_load(path.read_text())["dependencies"] if isinstance(item, dict)]
    assert pip
    for line in pip:
        name, version = line.split("==")
        assert lock[name] == version


def test_every_stage_has_an_environment():
    rules = "\n".join(path.read_text() for path in sorted((ROOT / "workflow").rglob("*.smk")))
    named = set(re.findall(r"envs/(\w+)\.yaml", rules + (ROOT / "Snakefile").read_text()))
    assert named | {kind.env for kind in KINDS.values()} == {path.stem for path in ENVS}
    assert rules.count("shell:") == rules.count("conda:") >= 10


ALONE = """
import importlib, json, re, sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from packaging.requirements import Requirement

def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def needs(line):
    wanted = Requirement(line)
    try:
        lines = [Requirement(line) for line in distribution(wanted.name).requires or ()]
    except PackageNotFoundError:
        return []
    extras = ["", *wanted.extras]
    return [str(it) for it in lines if not it.marker or any(it.marker.evaluate({"extra": name}) for name in extras)]

waiting, visited = json.loads(sys.argv[1]), set()
while waiting:
    line = waiting.pop()
    if line not in visited:
        visited.add(line)
        waiting += needs(line)
allowed = {plain(Requirement(line).name) for line in visited}
owners = packages_distributions()

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        owned = set(map(plain, owners.get(name.split(".")[0], ())))
        own = not owned or "tandem-retrieval" in owned or owned & allowed
        return super().find_spec(name, path, target) if own else None

sys.meta_path[:] = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
failures = {}
for module in json.loads(sys.argv[2]):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        failures[module] = error.name
print(json.dumps(failures))
"""


@pytest.fixture(scope="module")
def commands():
    """Environment → the commands, but for the stages', that rules run in it."""
    snakefile = (ROOT / "Snakefile").read_text()
    rules = "\n".join(path.read_text() for path in sorted((ROOT / "workflow").rglob("*.smk")))
    named = dict(re.findall(r"^(\w+) = .*/envs/(\w+)\.yaml", snakefile, re.MULTILINE))
    around_others = set(re.findall(r"^[A-Z]+ = \".*python -m tandem ([\w-]+) ", rules, re.MULTILINE))
    run = {env: set(around_others) for env in (path.stem for path in ENVS)}
    for rule in re.split(r"^ *rule\b", rules, flags=re.MULTILINE):
        environment, command = re.search(r"conda:\s+(\S+)", rule), re.search(r"python -m tandem ([\w-]+)", rule)
        if environment and command and command[1] in COMMANDS:
            path = re.fullmatch(r"f?\".*/envs/(\w+)\.yaml\"", environment[1])
            run[path[1] if path else named[environment[1]]].add(command[1])
    return run


def test_the_steps_of_the_graph_are_the_commands_that_rules_run(commands):
    assert set().union(*commands.values()) == {name for name, command in COMMANDS.items() if command.group == STEPS}


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)
def test_an_environment_has_what_its_stages_and_commands_import(path, commands):
    (pip,) = [item["pip"] for item in yaml.safe_load(path.read_text())["dependencies"] if isinstance(item, dict)]
    packages = [line.split("==")[0] for line in pip]
    entries = {kind.run for kind in KINDS.values() if kind.env == path.stem and isinstance(kind.run, str)}
    entries |= {COMMANDS[name].entry for name in commands[path.stem]}
    modules = sorted({f"tandem.{entry.split(':')[0]}" for entry in entries} | {"tandem.__main__"})
    line = [sys.executable, "-c", ALONE, json.dumps(packages), json.dumps(modules)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_an_annotation_sheet_needs_no_package_of_the_tables():
    """The stage that writes it runs in the environment of models, which has no ir_measures."""
    values = "groups=[], total=0, shown=0, key='k', scored_by='BM25', columns=[], formula=[]"
    page = f"render_template('sheet.html', {values})"
    line = "import sys; sys.modules['ir_measures'] = None; from tandem.extras.audits.sheets import render_template; "
    done = subprocess.run([sys.executable, "-c", line + page], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


STAND_IN = """#!/bin/sh
case "$1" in
  info) echo '{"conda_prefix": "/nowhere", "platform": "linux-64"}' ;;
  --version) echo conda 25.1.0 ;;
  config) echo '{"get": {"channel_priority": "strict"}}' ;;
  env) echo "$PIP_CONSTRAINT" >> said; while [ $# -gt 1 ]; do [ "$1" = --prefix ] && mkdir -p "$2"; shift; done ;;
esac
"""


def test_conda_s_pip_is_held_to_the_lock_file(tiny_dag, tmp_path, monkeypatch):
    """What a list of packages needs in turn would else be the newest: another torch, with gigabytes of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/conda").write_text(STAND_IN)
    (tmp_path / "bin/conda").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    line = snakemake(tiny_dag.folder, ["--sdm", "conda", "--conda-create-envs-only", "--conda-prefix", str(tmp_path)])
    line[line.index("--directory") + 1] = str(tmp_path)
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    constraints = (tmp_path / "said").read_text().splitlines()
    assert constraints
    assert set(constraints) == {(ROOT / "envs/requirements.lock").as_uri()}


@pytest.mark.parametrize("words", [[], ["tests"]])
def test_setup_takes_uv_where_it_is_there(words, tmp_path):
    for name in ("envs/setup.sh", "envs/requirements.lock", "envs/requirements-tests.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text('#!/bin/sh\necho "$@" >> said\n')
    (tmp_path / "bin/uv").chmod(0o755)
    own = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable}
    done = subprocess.run([tmp_path / "envs/setup.sh", *words], env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    locked, itself = (tmp_path / "said").read_text().splitlines()
    assert locked.endswith("-r .venv/requirements.lock")
    assert itself.endswith("-e .")
    assert (tmp_path / ".venv/.installed").exists()
    pins = (tmp_path / ".venv/requirements.lock").read_text()
    assert ("\ntorch==" in pins, "\nruff==" in pins) == (True, bool(words))
    assert (tmp_path / ".venv/.tests-installed").exists() == bool(words)


def test_setup_refuses_another_word(tmp_path):
    done = subprocess.run([ROOT / "envs/setup.sh", "test"], cwd=tmp_path, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert "test is not known" in line
