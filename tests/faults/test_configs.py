"""Whatever a configuration holds: it is planned, or refused with a line for each mistake, soon, without a traceback."""

import copy
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults_kit import TORTURE
from hypothesis import HealthCheck, given, settings
from mutations import DEFAULT, broken, put, unfit

from tandem.errors import UserError
from tandem.planning.plan import Plan

ROOT = Path(__file__).parents[2]
SECONDS = 3
PLACE = re.compile(
    r"results/[A-Za-z0-9_][A-Za-z0-9_.-]*/[a-z0-9_]+/[A-Za-z0-9_][A-Za-z0-9_.+@-]*-[0-9a-f]{10}/stage\.json"
)


def refused(config: dict) -> list[str]:
    """The lines that a configuration is refused with; none where it is planned, with everything below results/."""
    began = time.process_time()
    try:
        plan = Plan(copy.deepcopy(config), ROOT)
        made = plan.made() + plan.sweeps()
        plan.by_name()
    except UserError as error:
        assert time.process_time() - began < SECONDS
        return str(error).split("\n")
    assert not [path for path in made if ".." in path.split("/") or not path.startswith("results/")]
    assert not [stage.manifest for stage in plan.stages.values() if not PLACE.fullmatch(stage.manifest)]
    assert all("\n" not in stage.key and "\0" not in stage.args for stage in plan.stages.values())
    return []


@settings(
    max_examples=300 if TORTURE else 25,
    derandomize=not TORTURE,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(config=broken())
def test_any_configuration_is_planned_or_refused_in_lines(config):
    lines = refused(config)
    assert lines or not unfit(copy.deepcopy(config))
    assert all(line.strip() and len(line) < 3000 and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        ("dataset", "../../etc", "dataset: ../../etc is unknown"),
        ("datasets", ["pydocs"], 'datasets is ["pydocs"]; allowed: object'),
        ("models.rocketqav2.like", ["a"], "models.rocketqav2.like"),
        ("models.rocketqav2.train.lr", float("nan"), "models.rocketqav2.train.lr"),
        ("models.rocketqav2.train.lr", float("inf"), "models.rocketqav2.train.lr"),
        ("models.rocketqav2.train.steps", 2**70, "models.rocketqav2.train.steps"),
        ("models.../up", {"like": "rocketqav2"}, "../up"),
        ("encoder", "org/na me\0", "encoder"),
        ("seed", "1; touch x", 'seed is "1; touch x"; allowed: integer'),
        ("depth.test", -5, "depth.test is -5; allowed: ≥ 1"),
        ("tables", ["/etc/passwd"], "tables: /etc/passwd"),
        ("recipes", ["../../etc/passwd"], "recipes: ../../etc/passwd is unknown"),
    ],
)
def test_nasty_values_are_named(at, value, said):
    config = copy.deepcopy(DEFAULT)
    put(config, ("models", "../up") if at == "models.../up" else tuple(at.split(".")), value)
    lines = refused(config)
    assert said in "\n".join(lines)
    assert len(lines) == 1


def test_a_mistake_is_said_once_and_not_for_each_model_that_is_like_it():
    config = copy.deepcopy(DEFAULT)
    put(config, ("models", "rocketqav2", "train", "lrr"), 1)
    assert refused(config) == ["models.rocketqav2.train.lrr is not a known key; did you mean lr?"]


def test_two_mistakes_are_two_lines():
    config = copy.deepcopy(DEFAULT)
    put(config, ("sweeps", "mine"), {})
    assert refused(config) == ["sweeps.mine.grid is missing", "sweeps.mine.systems is missing"]


FILES = {
    "mistake": "rerank: {depht: 3}\n",
    "empty": "",
    "list": "- a\n",
    "syntax": "dataset: [unclosed\n",
    "tab": "dataset: a\n\tb: c\n",
    "python": "a: !!python/object/apply:os.system ['touch pwned']\n",
    "laughs": "a: &a [x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nseed: [*b,*b,*b,*b,*b,*b,*b]\n",
}


@pytest.mark.parametrize("name", FILES if TORTURE else ["mistake", "python"])
def test_snakemake_itself_says_a_line_and_exits_with_1(tmp_path, name):
    (tmp_path / "mine.yaml").write_text(FILES[name])
    line = [sys.executable, "-m", "snakemake", "-n", "-s", str(ROOT / "Snakefile"), "--directory", str(tmp_path)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [*line, "--workflow-profile", "none", "--configfile", str(tmp_path / "mine.yaml")]
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert "Traceback" not in told
    assert "rerank.depht" in told or name != "mistake"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS + 1  # it starts in two
    assert not (tmp_path / "pwned").exists()
