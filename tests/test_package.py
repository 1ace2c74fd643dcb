"""The wheel and the source distribution, installed without the checkout, from an empty folder to the tiny table."""

import ast
import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from tiny_project import LAYOUT, commit_all, tiny_config, write_beir

from tandem import __version__
from tandem.cluster.faults import EXTRAS

ROOT = Path(__file__).parents[1]
TREE = (
    "Snakefile",
    "README.md",
    "LICENSE",
    "pyproject.toml",
    "CITATION.cff",
    "config",
    "envs",
    "examples",
    "notebooks",
    "tests",
    "workflow",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRA = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
ALL = [*CORE, *chain.from_iterable(EXTRA.values())]


def plain(name):
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def lock():
    """The version of each package that the tests run with: of a lock file, else of the job for storage in CI."""
    files = (
        ".github/workflows/ci.yml",
        "envs/requirements-tests.lock",
        "envs/requirements.lock",
    )
    texts = [(ROOT / name).read_text() for name in files]
    pins = re.findall(r"(?m)(?:^|\")([\w.-]+)(?:\[[\w,]+\])?==([\w.+]+)", "\n".join(texts))
    return {plain(name): version for name, version in pins}


@pytest.mark.parametrize("requirement", ALL, ids=lambda it: it.name)
def test_the_bounds_of_a_dependency_are_those_of_the_lock(requirement, lock):
    major, minor = lock[plain(requirement.name)].split(".")[:2]
    upper = f"0.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
    assert {str(it) for it in requirement.specifier} == {f">={major}.{minor}", f"<{upper}"}


def test_the_version_is_that_of_the_newest_changes():
    """Between releases the version is the next one's, `.dev0`; CITATION.cff has the last one's."""
    headings = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    version = Version(__version__)
    if version.is_devrelease:
        assert headings[0] == "Unreleased"
        headings = headings[1:]
        assert version > Version(headings[0])
    else:
        assert version == Version(headings[0])
    assert headings[0] == cited
    assert "Unreleased" not in headings


def imported():
    """Module of others that the package imports → the first file that does."""
    result = {}
    for path in sorted((ROOT / "workflow").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            for name in names:
                result.setdefault(name.partition(".")[0], path.relative_to(ROOT))
    return {
        name: path
        for name, path in result.items()
        if name not in {*sys.stdlib_module_names, "tandem"}
    }


def test_everything_imported_is_a_dependency():
    owners = packages_distributions()
    asked = {plain(requirement.name) for requirement in ALL}
    # pydantic pins the first; the second builds the package; PyTorch for CUDA brings the third,
    # and that for a CPU does not: then it has no owner here
    asked |= {"pydantic-core", "setuptools", "triton"}
    unasked = {
        name: path
        for name, path in imported().items()
        if not asked & set(map(plain, owners.get(name, [name])))
    }
    assert unasked == {}


def test_a_package_of_an_extra_that_is_missing_is_named_with_the_extra():
    for module, extra in EXTRAS.items():
        assert plain(module) in {plain(requirement.name) for requirement in EXTRA[extra]}
    text = "import sys; sys.modules['nbformat'] = None; from tandem.__main__ import main; main()"
    words = ["notebook", "--notebook", "a.ipynb", "--artifact", "b", "--out", "c.ipynb"]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert "tandem-retrieval[notebooks]" in line


def run(words, folder, **variables):
    """Output of a command that knows nothing of the checkout."""
    own = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    environment = {name: value for name, value in os.environ.items() if name not in own} | variables
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with wheel/ and sdist/, built from a commit of the tree, and the commit."""
    pytest.importorskip("setuptools", "77")
    if shutil.which("git") is None:
        pytest.skip("git, whose commit a wheel names, is not there")
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    (source / ".gitignore").write_text("__pycache__\n*.egg-info\nbuild\n")
    commit_all(source)
    build = "import sys; from setuptools import build_meta; build_meta.build_{0}('../{0}')"
    for kind in ("sdist", "wheel"):
        (folder / kind).mkdir()
        run([sys.executable, "-c", build.format(kind)], source)
    return folder, run(["git", "rev-parse", "HEAD"], source).strip()


# What an installed package asks for and the environment does not meet; a package of an extra may be missing.
UNMET = """
import json
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
unmet = []
for asked in map(Requirement, requires("tandem-retrieval")):
    try:
        met = version(asked.name) in asked.specifier
    except PackageNotFoundError:
        met = asked.marker is not None
    if not met:
        unmet.append(str(asked))
print(json.dumps(unmet))
"""


@pytest.fixture(scope="module")
def install(tmp_path_factory, built):
    """`install(kind)`: an environment with the wheel or the sdist; other packages are those of this environment."""

    def make(kind):
        folder = tmp_path_factory.mktemp(f"{kind}-installed")
        venv.create(folder, symlinks=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (distribution,) = (built[0] / kind).iterdir()
        pip = [
            folder / "bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--no-index",
            "--disable-pip-version-check",
        ]
        run([*pip, "--no-deps", "--no-build-isolation", "--force-reinstall", distribution], folder)
        assert json.loads(run([folder / "bin/python", "-c", UNMET], folder)) == []
        return folder, packages

    return make


@pytest.fixture(scope="module")
def wheel(install):
    return install("wheel")


def files(packages):
    """Content of the package's files, without compiled ones."""
    paths = [
        path
        for path in (packages / "tandem").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    return {str(path.relative_to(packages)): path.read_bytes() for path in paths}


def test_an_installed_package_says_its_version_and_commit(wheel, built, tmp_path):
    run(["git", "init", "-q"], tmp_path)  # a checkout of something else
    text = run([wheel[0] / "bin/tandem", "--version"], tmp_path)
    assert text == f"tandem {__version__}, commit {built[1][:12]}, {wheel[1]}/tandem/_project\n"


def test_a_python_of_conda_s_is_shown_the_package_alone(wheel, tmp_path):
    script = (
        "from tandem.extras.import_path import find_library_folder as find; "
        "print(find(), find(same_python=False))"
    )
    here, folder = run([wheel[0] / "bin/python", "-c", script], tmp_path).split()
    assert here == "None"
    assert [path.name for path in Path(folder).iterdir()] == ["tandem"]
    assert (Path(folder) / "tandem/_project/Snakefile").is_file()


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_description_links_to_nothing_of_the_repository(kind, built):
    """A package index's page shows README where no other file of it is."""
    (distribution,) = (built[0] / kind).iterdir()
    if kind == "wheel":
        with ZipFile(distribution) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
            text = archive.read(name).decode()
    else:
        with tarfile.open(distribution) as archive:
            (name,) = [
                name
                for name in archive.getnames()
                if name.count("/") == 1 and name.endswith("/PKG-INFO")
            ]
            text = archive.extractfile(name).read().decode()
    description = email.message_from_string(text).get_payload()
    assert "tandem init mine" in description
    assert "[running](" not in description
    assert "Snakemake with one line of progress (running)" in description
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert len(targets) == len(re.findall(r"\]\(https://", (ROOT / "README.md").read_text()))


def test_the_sdist_installs_the_same_files(wheel, install):
    assert files(install("sdist")[1]) == files(wheel[1])


def test_the_workflow_travels(wheel):
    folders = ("config", "workflow/rules", "workflow/report", "notebooks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = {name.removeprefix("tandem/_project/") for name in files(wheel[1])}
    assert {str(path.relative_to(ROOT)) for path in paths} - names == set()


def test_from_an_empty_folder_to_the_tiny_table(
    wheel, encoder_folder, documents, tiny_dag, tmp_path
):
    tandem, folder = wheel[0] / "bin/tandem", tmp_path / "un été"
    folder.mkdir()
    write_beir(tmp_path / "beir", documents)
    run(
        [
            tandem,
            "init",
            "mine",
            "--data",
            tmp_path / "beir",
            "--encoder",
            encoder_folder,
            "--seconds",
            "0",
        ],
        folder,
    )
    assert "BM25" in run([tandem, "run", "mine.yaml", "baseline", "--", "--cores", "2"], folder)
    (folder / "layout").mkdir()
    (folder / "layout/tiny.yaml").write_text(yaml.safe_dump(LAYOUT))
    config = tiny_config(tmp_path, encoder_folder) | {"tables": ["layout/tiny.yaml"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    run([tandem, "run", "config.yaml", "--", "--cores", "2"], folder)
    table = Path("results/tables/tiny.csv")
    # as the checkout makes it
    assert (folder / table).read_bytes() == (tiny_dag.folder / table).read_bytes()
