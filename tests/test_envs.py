"""conda's environments hold the lock file's versions, and every rule that runs a stage names one of them."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ENVS = sorted((ROOT / "envs").glob("*.yaml"))


@pytest.fixture(scope="module")
def lock():
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "envs/requirements.lock").read_text(), re.M))


def test_everything_asked_for_is_pinned(lock):
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in lock}
    asked = [line for line in (ROOT / "envs/requirements.in").read_text().splitlines() if not line.startswith("#")]
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in asked} <= pinned


@pytest.mark.parametrize("path", ENVS, ids=lambda path: path.stem)
def test_an_environment_has_the_locked_versions(path, lock):
    (pip,) = [one["pip"] for one in yaml.safe_load(path.read_text())["dependencies"] if isinstance(one, dict)]
    assert pip
    for line in pip:
        name, version = line.split("==")
        assert lock[name] == version


def test_every_stage_has_an_environment():
    rules = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    used = set(re.findall(r'"\.\./\.\./envs/(\w+)\.yaml"', rules))
    assert used == {path.stem for path in ENVS}
    assert rules.count("shell:") == rules.count("conda:") >= 10
