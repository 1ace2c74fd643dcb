"""Whatever a configuration holds: it is planned, or refused with a line for each mistake, without a traceback."""

import copy
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from faults_kit import SEED, TORTURE
from hypothesis import HealthCheck, Phase, given, seed, settings
from messages import unknown_key
from mutations import DEFAULT, broken, unfit
from tiny_project import put, run_here

from tandem.config.merging import gathered, merged
from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
PLACE = re.compile(
    r"results/[A-Za-z0-9_][A-Za-z0-9_.-]*/[a-z0-9_]+/[A-Za-z0-9_][A-Za-z0-9_.+@-]*-[0-9a-f]{10}/stage\.json"
)


def refused(config: dict) -> list[str]:
    """The lines that a configuration is refused with; none where it is planned, with everything below results/."""
    try:
        plan = FullPlan(copy.deepcopy(config), ROOT)
        files = plan.tables.files() + plan.files_of_all()
        plan.plan_every_target()
    except UserError as error:
        return str(error).split("\n")
    assert not [
        path for path in files if ".." in path.split("/") or not path.startswith("results/")
    ]
    assert not [
        stage.manifest for stage in plan.stages.values() if not PLACE.fullmatch(stage.manifest)
    ]
    assert all("\n" not in stage.key and "\0" not in stage.args for stage in plan.stages.values())
    return []


EACH = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@seed(SEED)
@settings(max_examples=300 if TORTURE else 25, **EACH)
@given(config=broken())
def test_any_configuration_is_planned_or_refused_in_lines(config):
    lines = refused(config)
    assert lines or not unfit(copy.deepcopy(config))
    assert [
        line for line in lines if not line.strip() or len(line) >= 3000 or not line.isprintable()
    ] == []


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ("dataset", "../../etc", "dataset: ../../etc is unknown"),
        ("datasets", ["pydocs"], 'datasets is ["pydocs"]; allowed: mapping'),
        ("models.rocketqav2.like", ["a"], "models.rocketqav2.like"),
        ("models.rocketqav2.train.lr", float("nan"), "models.rocketqav2.train.lr"),
        ("models.rocketqav2.train.lr", float("inf"), "models.rocketqav2.train.lr"),
        ("models.rocketqav2.train.steps", 2**70, "models.rocketqav2.train.steps"),
        # no float is as large
        ("models.rocketqav2.train.lr", 10**400, "models.rocketqav2.train.lr is 1000"),
        ("models.../up", {"like": "rocketqav2"}, "../up"),
        ("encoder", "org/na me\0", "encoder"),
        ("seed", "1; touch x", 'seed is "1; touch x"; allowed: integer'),
        ("depth.test", -5, "depth.test is -5; allowed: ≥ 1"),
        ("tables", ["/etc/passwd"], "tables: /etc/passwd"),
        ("recipes", ["../../etc/passwd"], "recipes: ../../etc/passwd is unknown"),
    ],
)
def test_nasty_values_are_named(at, value, message):
    config = copy.deepcopy(DEFAULT)
    put(config, ("models", "../up") if at == "models.../up" else tuple(at.split(".")), value)
    lines = refused(config)
    assert message in "\n".join(lines)
    assert len(lines) == 1


def test_a_mistake_is_said_once_and_not_for_each_model_that_is_like_it():
    config = copy.deepcopy(DEFAULT)
    put(config, ("models", "rocketqav2", "train", "lrr"), 1)
    assert refused(config) == [unknown_key("models.rocketqav2.train.lrr", "lr")]


def test_two_mistakes_are_two_lines():
    config = copy.deepcopy(DEFAULT)
    put(config, ("sweeps", "mine"), {})
    assert refused(config) == ["sweeps.mine.grid is missing", "sweeps.mine.systems is missing"]


HELD = "sweeps: &a {mine: *a}\n"
LAUGHS = (
    "a: &a [x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{f'*{a},' * 7}]\n" for a, b in pairwise("abcdefghi"))
    + "seed: *i\n"
)
FILES = {
    "mistake": ("rerank: {depht: 3}\n", unknown_key("rerank.depht", "depth")),
    "empty": ("", "must be given as JSON or YAML with keys at top level"),
    "list": ("- a\n", "must be given as JSON or YAML with keys at top level"),
    "syntax": ("dataset: [unclosed\n", "Config file is not valid JSON or YAML"),
    "tab": ("dataset: a\n\tb: c\n", "Config file is not valid JSON or YAML"),
    "python": (
        "a: !!python/object/apply:os.system ['touch pwned']\n",
        "Config file is not valid JSON or YAML",
    ),
    "laughs": (LAUGHS, "f holds more than 100,000 values"),
    "itself": ("seed: &a [1, *a]\n", "seed.1.1.1 contains itself"),
}


def snakemake(folder: Path, text: str) -> tuple[int, str]:
    """Exit status and output of a dry run with a configuration file of this content."""
    (folder / "mine.yaml").write_text(text)
    line = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "-s",
        str(ROOT / "Snakefile"),
        "--directory",
        str(folder),
    ]
    words = [*line, "--workflow-profile", "none", "--configfile", str(folder / "mine.yaml")]
    return run_here(words)


@pytest.mark.parametrize("name", FILES if TORTURE else ["mistake", "python", "itself"])
def test_snakemake_itself_says_a_line_and_exits_with_1(tmp_path, name):
    text, message = FILES[name]
    code, output = snakemake(tmp_path, text)
    assert code == 1, output
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(not TORTURE, reason="200 times Snakemake's start: make torture")
def test_snakemake_ends_with_1_and_a_line_for_each_mistake(tmp_path):
    tried = []

    @seed(SEED)
    @settings(max_examples=400, phases=[Phase.generate], **EACH)
    @given(config=broken())
    def try_one(config):
        """Give Snakemake what the plan refuses, until that was 200 times."""
        if len(tried) >= 200:
            return
        text = yaml.safe_dump(config, allow_unicode=True)
        if not (lines := refused(merged(DEFAULT, yaml.safe_load(text)))):
            return
        code, output = snakemake(tmp_path, text)
        assert code == 1, output
        assert "Traceback" not in output
        assert [line for line in lines if line not in output] == []
        tried.append(text)

    try_one()
    assert len(tried) == 200, f"seed {SEED}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed: \xff\n", "not UTF-8 at byte 6"),
        (b"- a\n", "holds list and no mapping"),
        (b"seed: 2026-13-01\n", "holds a value that cannot be read: month must be in 1..12"),
        (HELD.encode(), "sweeps.mine.mine.mine contains itself"),
        (
            b"seed: " + b"[" * 500 + b"]" * 500,
            "seed.0.0.0 contains itself, or is nested deeper than 100 levels",
        ),
        (None, "is a folder; `tandem init NAME --data "),
    ],
)
def test_what_snakemake_itself_cannot_read_our_own_commands_name(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        gathered([path], ROOT)
    assert "\n" not in str(caught.value)
