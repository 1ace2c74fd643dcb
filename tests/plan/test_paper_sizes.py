"""The configurations at the papers' sizes can be planned; so can every collection that would be downloaded."""

from pathlib import Path

import pytest

from tandem.config.merging import merged, read_yaml
from tandem.extras.estimate.estimate import estimate_stage, new_setting
from tandem.extras.estimate.resources import Hardware
from tandem.extras.plan import FullPlan
from tandem.plan.graph import upstream_first

ROOT = Path(__file__).parents[2]


def planned(name: str) -> FullPlan:
    """The plan of config/<name>.yaml, as `--configfile` lays it upon the default."""
    return FullPlan(
        merged(read_yaml(ROOT / "config/config.yaml"), read_yaml(ROOT / f"config/{name}.yaml")),
        ROOT,
    )


# Steps by hand: instances × epochs / batch, to the nearest full batch.
STEPS = {
    "msmarco": {
        # RocketQA's scripts: 532,761 positives of 502,939 queries, four negatives each; 8 × 512 a batch, 4 × 64 pairs
        "m_d0": round(532_761 * 40 / 4096),  # 5,203
        "m_c": round(532_761 * (1 + 4) * 2 / 256),  # 20,811
        "m_d1": round(532_761 * 10 / 4096),  # 1,301
        # their files have a row for each negative: 20,811 and 5,203
        "m_d0_release": round(532_761 * 4 * 40 / 4096),
        "m_d1_release": round(532_761 * 4 * 10 / 4096),
        # RocketQAv2 §4.1 and its script: a random and a denoised list for each query, 2 epochs, batches of 96
        "rocketqav2": 20_956,  # 502,939 × 2 × 2 / 96 = 20,955.8, the last batch not full
        "rocketqav2_8_nodenoise": 20_956,  # one list a query, twice as many epochs
        "rocketqav2_8_nodenoise_half": 10_478,  # one list a query
        "rocketqav2_three_visits": 15_717,  # 1.5 epochs of both lists
    },
    "nq": {
        "m_d0": 1_725,  # 58,880 questions × 30 / 1,024
        "m_c": 58_880 * 2 * 2 // 64,  # a positive and a negative each, 2 epochs, 64 pairs: 3,680
        "rocketqav2": 58_880 * 2 * 3 // 96,  # two lists each, 3 epochs: 3,680
    },
    "dureader": {
        # Qiu et al. 2022, Table 3 and A.2: 222,395 positives with four negatives; 256 for 10 epochs, 64 pairs for 3
        "de_bm25neg": 8_687,  # 222,395 × 10 / 256 = 8,687.3
        "de_bm25neg_release": round(222_395 * 4 * 10 / 256),  # 34,749
        "ce_bm25neg": 52_124,  # 222,395 × 5 × 3 / 64 = 52,123.8
        "ce_deneg": 52_124,
    },
}


@pytest.mark.parametrize("name", STEPS)
def test_trainings_have_the_steps_of_paper_and_release(name):
    plan = planned(name)
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    setting = new_setting(plan.settings, machine)
    costs = {
        model: estimate_stage(plan.planner.model(model, "test"), setting, machine)
        for model in STEPS[name]
    }
    assert {model: cost.steps for model, cost in costs.items()} == STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_a_paper_sized_configuration_has_a_price(name):
    plan = planned(name)
    assert plan.tables.files()
    stages = upstream_first(plan.tables.requested_scores())
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    about = new_setting(plan.settings, machine)
    priced = {
        stage.kind: cost for stage in stages if (cost := estimate_stage(stage, about, machine))
    }
    assert {"dataset", "tokens", "bm25", "model", "embeddings", "retrieve", "rerank"} <= set(priced)
    assert all(cost.measured is None for cost in priced.values())
    assert "rocketqav2" in {stage.name for stage in stages if stage.kind == "model"}


def test_msmarco_trains_jointly_as_the_paper_says():
    plan = planned("msmarco")
    train = plan.settings.models["rocketqav2"].train
    assert (train.queries_per_batch, train.list_size, train.lr, train.steps) == (
        96,
        128,
        1e-5,
        None,
    )
    stage = plan.planner.model("rocketqav2", "test")
    machine = Hardware.load(ROOT / "config/hardware", "h200")
    cost = estimate_stage(stage, new_setting(plan.settings, machine), machine)
    # 2 epochs of 2 lists for 502,939 queries; 108 million weights in two towers and a cross-encoder
    seconds_per_query = cost.seconds / (4 * 502_939)
    assert 1 / 40 < seconds_per_query < 1 / 25


def test_a_model_set_to_null_is_left_out():
    config = read_yaml(ROOT / "config/config.yaml") | {
        "tables": ["baseline"],
        "recipes": ["dureader_retrieval"],
    }
    config["models"] = config["models"] | {"rocketqav2": None}
    assert "rocketqav2" not in FullPlan(config, ROOT).settings.models


def test_collections_to_be_downloaded_are_planned_with_their_files():
    plan = planned("dureader")
    there = [name for name, spec in plan.catalogue.items() if spec.get("files")]
    assert len(there) > 5
    for name in there:
        stage = plan.planner.dataset(name)
        assert stage.name == stage.execution["name"] == name
        assert stage.execution["files"] == plan.catalogue[name]["files"]
