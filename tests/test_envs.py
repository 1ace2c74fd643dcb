"""conda's environments hold the lock file's versions, and what the stages and commands of their rules import."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import venv
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile, ZipInfo

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
        waiting += [
            str(it)
            for it in lines
            if not it.marker or any(it.marker.evaluate({"extra": e}) for e in extras)
        ]
    return {plain(Requirement(line).name) for line in visited}


def test_a_run_installs_what_it_needs_and_nothing_of_the_tests(lock):
    run = needed(asked("requirements.in"))
    assert run <= set(map(plain, lock))
    assert needed(asked("requirements-tests.in")) - run <= set(
        map(plain, read_lock("requirements-tests.lock"))
    )
    if sys.version_info[:2] == (3, 11):  # which the lock files are made with; others need less
        assert set(map(plain, lock)) == run


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)
def test_an_environment_has_the_locked_versions(path, lock):
    (pip,) = [
        item["pip"]
        for item in yaml.safe_load(path.read_text())["dependencies"]
        if isinstance(item, dict)
    ]
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
    around_others = set(
        re.findall(r"^[A-Z]+ = \".*python -P -m tandem ([\w-]+) ", rules, re.MULTILINE)
    )
    run = {env: set(around_others) for env in (path.stem for path in ENVS)}
    for rule in re.split(r"^ *rule\b", rules, flags=re.MULTILINE):
        environment, command = (
            re.search(r"conda:\s+(\S+)", rule),
            re.search(r"python -P -m tandem ([\w-]+)", rule),
        )
        if environment and command and command[1] in COMMANDS:
            path = re.fullmatch(r"f?\".*/envs/(\w+)\.yaml\"", environment[1])
            run[path[1] if path else named[environment[1]]].add(command[1])
    return run


def test_the_steps_of_the_graph_are_the_commands_that_rules_run(commands):
    assert set().union(*commands.values()) == {
        name for name, command in COMMANDS.items() if command.group == STEPS
    }


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)
def test_an_environment_has_what_its_stages_and_commands_import(path, commands):
    (pip,) = [
        item["pip"]
        for item in yaml.safe_load(path.read_text())["dependencies"]
        if isinstance(item, dict)
    ]
    packages = [line.split("==")[0] for line in pip]
    entries = {
        kind.run for kind in KINDS.values() if kind.env == path.stem and isinstance(kind.run, str)
    }
    entries |= {COMMANDS[name].entry for name in commands[path.stem]}
    modules = sorted(
        {f"tandem.{entry.split(':')[0]}" for entry in entries} | {"tandem.__main__", "tandem.start"}
    )
    line = [sys.executable, "-c", ALONE, json.dumps(packages), json.dumps(modules)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_an_annotation_sheet_needs_no_package_of_the_tables():
    """The stage that writes it runs in the environment of models, which has no ir_measures."""
    values = "groups=[], total=0, shown=0, key='k', scored_by='BM25', columns=[], formula=[]"
    page = f"render_template('sheet.html', {values})"
    line = "import sys; sys.modules['ir_measures'] = None; from tandem.contrib.audits.sheets import render_template; "
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
    line = snakemake(
        tiny_dag.folder,
        ["--sdm", "conda", "--conda-create-envs-only", "--conda-prefix", str(tmp_path)],
    )
    line[line.index("--directory") + 1] = str(tmp_path)
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    constraints = (tmp_path / "said").read_text().splitlines()
    assert constraints
    assert set(constraints) == {(ROOT / "envs/requirements.lock").as_uri()}


SETUP = (
    "envs/setup.sh",
    "envs/install_by_uv.py",
    "envs/requirements.lock",
    "envs/requirements-tests.lock",
)
UV = '#!/bin/sh\necho "$@" >> "$SAID"\necho "$SSL_CERT_FILE" > "$SAID.certificate"\n'


@pytest.fixture
def pip_settings(tmp_path):
    """`pip_settings(text, **variables)`: an environment with these settings of pip's, in a file and as variables.

    Variables of this machine's own are left out, as is its uv; its files remain.
    """

    def make(text="", **variables):
        (tmp_path / "pip.conf").write_text(text)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "UV_", "SSL_"))
        }
        own = {"PATH": "bin", "SAID": "said", "PIP_CONFIG_FILE": "pip.conf"}
        return kept | {name: str(tmp_path / path) for name, path in own.items()} | variables

    (tmp_path / "bin").mkdir()
    return make


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("words", [[], ["tests"]])
def test_setup_takes_uv_where_it_is_there(words, tmp_path, pip_settings):
    for name in SETUP:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    write_program(tmp_path / "bin/uv", UV)
    environment = pip_settings(PYTHON=sys.executable)
    environment["PATH"] += os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        [tmp_path / "envs/setup.sh", *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    locked, itself = (tmp_path / "said").read_text().splitlines()
    assert locked.endswith("-r .venv/requirements.lock")
    assert itself.endswith("-e .")
    assert (tmp_path / ".venv/.installed").exists()
    pins = (tmp_path / ".venv/requirements.lock").read_text()
    assert ("\ntorch==" in pins, "\nruff==" in pins) == (True, bool(words))
    assert (tmp_path / ".venv/.tests-installed").exists() == bool(words)


def install_by_uv(environment, python=sys.executable):
    """Status of what setup.sh does first, and the words that uv was given."""
    line = [python, ROOT / "envs/install_by_uv.py", "-r", "a.lock"]
    said = Path(environment["SAID"])
    return subprocess.run(
        line, env=environment
    ).returncode, said.read_text().split() if said.exists() else None


def test_uv_takes_packages_from_where_pip_would(tmp_path, pip_settings):
    write_program(tmp_path / "bin/uv", UV)
    text = """
        [global]
        extra-index-url = file:///one
            file:///two
        find-links = /old
        cert = /ca.pem
        timeout = 3
        [install]
        find-links = /new
        no-index = false
        [freeze]
        timeout = 10
    """
    environment = pip_settings(textwrap.dedent(text), PIP_CONSTRAINT="/c.txt")
    status, words = install_by_uv(environment)
    assert (status, words[:5]) == (0, ["pip", "install", "--quiet", "--python", sys.executable])
    assert words[-2:] == ["-r", "a.lock"]
    assert (tmp_path / "said.certificate").read_text() == "/ca.pem\n"
    flags = list(pairwise(words))
    assert [value for flag, value in flags if flag == "--index"] == ["file:///one", "file:///two"]
    assert [value for flag, value in flags if flag == "--find-links"] == ["/new"]
    assert [value for flag, value in flags if flag == "--constraints"] == ["/c.txt"]
    assert "--no-index" not in words


def test_what_uv_cannot_be_told_is_left_to_pip(tmp_path, pip_settings):
    write_program(tmp_path / "bin/uv", UV)
    assert install_by_uv(pip_settings(PIP_PLATFORM="any")) == (1, None)


def test_pip_fetches_uv_where_it_is_missing(tmp_path, pip_settings):
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = tmp_path.glob("venv/lib/python*/site-packages")
    (packages / "pip.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "venv/bin/python"
    environment = pip_settings(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "wheels"))
    assert install_by_uv(environment, python) == (1, None)  # there is none to fetch
    name, version = re.search(
        r'^UV = "(.*)==(.*)"', (ROOT / "envs/install_by_uv.py").read_text(), re.M
    ).groups()
    (tmp_path / "wheels").mkdir()
    with ZipFile(tmp_path / f"wheels/{name}-{version}-py3-none-any.whl", "w") as wheel:
        program = ZipInfo(f"{name}-{version}.data/scripts/uv")
        program.external_attr = 0o100755 << 16  # a file's mode, as Unix has it
        wheel.writestr(program, UV)
        about = f"{name}-{version}.dist-info"
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    status, words = install_by_uv(environment, python)
    assert (status, words[0]) == (0, "pip")
    assert words[-2:] == ["-r", "a.lock"]
    assert {"--no-index", "--find-links"} <= set(words)


def test_setup_refuses_another_word(tmp_path):
    done = subprocess.run(
        [ROOT / "envs/setup.sh", "test"], cwd=tmp_path, capture_output=True, text=True
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert "test is not known" in line
