"""Planners of a configuration's variants share equal stages and nothing else."""

from pathlib import Path

import pytest

from tandem.plan.plan import Plan
from tandem.plan.planner import Planners

ROOT = Path(__file__).parents[2]
LOWER = {"models.rocketqav2.train.lr": 1e-6}


@pytest.fixture
def planners(configured):
    return Planners(configured(), ROOT)


def test_without_overrides_it_is_the_plans_own(configured):
    plan = Plan(configured(), ROOT)
    assert plan.planners.of({}) is plan.planner


def test_equal_stages_are_one_and_touched_ones_are_new(planners):
    first, second = planners.of({}), planners.of(LOWER)
    scores = [planner.score("rocketqav2.retriever", "here") for planner in (first, second)]
    assert scores[0].digest != scores[1].digest
    assert len([stage for stage in planners.stages.values() if stage.kind == "bm25"]) == 1
    models = sorted(stage.name for stage in planners.stages.values() if stage.kind == "model")
    assert models == ["ce_bm25neg", "ce_deneg", "de_bm25neg", "rocketqav2", "rocketqav2"]
    assert planners.of(LOWER) is second
