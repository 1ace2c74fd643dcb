"""The profiles name every rule that computes for long: what a stage's declaration says, they say too."""

from pathlib import Path

import pytest
import yaml

from tandem.stages import KINDS

PROFILES = Path(__file__).parents[2] / "config/profiles"


def rules(kind):
    return {kind.rule_name, f"{kind.rule_name}_shard"} if kind.shard else {kind.rule_name}


def profile(name):
    return yaml.safe_load((PROFILES / name / "config.yaml").read_text())


def test_under_slurm_stages_that_use_all_cores_get_several():
    expected = set().union(*(rules(kind) for kind in KINDS.values() if kind.threads != "one"))
    assert profile("slurm")["set-threads"].keys() >= expected


@pytest.mark.parametrize("name", ["slurm", "gpus"])
def test_stages_that_compute_by_models_have_cores(name):
    expected = set().union(
        *(rules(kind) for kind in KINDS.values() if kind.gpu and kind.threads == "all")
    )
    assert profile(name)["set-threads"].keys() >= expected


def test_under_slurm_models_have_more_memory_and_time_than_usual():
    expected = set().union(*(rules(kind) for kind in KINDS.values() if kind.gpu)) - {
        "retrieve",
        "retrieve_shard",
    }
    assert profile("slurm")["set-resources"].keys() >= expected
