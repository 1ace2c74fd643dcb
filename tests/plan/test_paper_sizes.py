"""The configurations at the papers' sizes can be planned; so can every collection that would be downloaded."""

from pathlib import Path

import pytest

from tandem.config.loading import merged, read_yaml
from tandem.extras.estimate.estimate import new_setting, stage_cost
from tandem.extras.estimate.resources import Hardware
from tandem.extras.plan import FullPlan
from tandem.plan.graph import upstream_first

ROOT = Path(__file__).parents[2]


def planned(name: str) -> FullPlan:
    """The plan of config/<name>.yaml, as `--configfile` lays it upon the default."""
    return FullPlan(merged(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / f"config/{name}.yaml")), ROOT)


@pytest.mark.parametrize("name", ["msmarco", "nq", "dureader"])
def test_a_paper_sized_configuration_has_a_price(name):
    plan = planned(name)
    assert plan.tables.files()
    stages = upstream_first(plan.tables.wanted_scores())
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    about = new_setting(plan.settings, machine)
    priced = {stage.kind: found for stage in stages if (found := stage_cost(stage, about, machine))}
    assert {"dataset", "tokens", "bm25", "model", "embeddings", "retrieve", "rerank"} <= set(priced)
    assert all(found.measured is None for found in priced.values())


def test_msmarco_trains_jointly_as_the_paper_says():
    plan = planned("msmarco")
    train = plan.settings.models["rocketqav2"].train
    assert (train.queries_per_batch, train.list_size, train.lr, train.steps) == (96, 128, 1e-5, None)
    stage = plan.planner.model("rocketqav2", "test")
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    found = stage_cost(stage, new_setting(plan.settings, machine), machine)
    # 3 visits of 502,939 queries; 108 million weights in two towers and a cross-encoder
    seconds_per_query = found.seconds / (3 * 502_939)
    assert 1 / 40 < seconds_per_query < 1 / 25


def test_a_model_set_to_null_is_left_out():
    told = read_yaml(ROOT / "config/config.yaml") | {"tables": ["baseline"], "recipes": ["dureader_retrieval"]}
    told["models"] = told["models"] | {"rocketqav2": None}
    assert "rocketqav2" not in FullPlan(told, ROOT).settings.models


def test_collections_to_be_downloaded_are_planned_with_their_files():
    plan = planned("dureader")
    there = [name for name, spec in plan.catalogue.items() if spec.get("files")]
    assert len(there) > 5
    for name in there:
        stage = plan.planner.dataset(name)
        assert stage.name == stage.execution["name"] == name
        assert stage.execution["files"] == plan.catalogue[name]["files"]
