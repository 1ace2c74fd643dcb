"""Where dev is missing and something is chosen on it, planning has it drawn from train, and says so."""

from pathlib import Path

import pytest
from tiny_project import tiny_config, write_beir

from tandem.config.merging import gathered, merged
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]
LINE = (
    "dataset tiny has no dev split: 10% of its training queries, at most 500, become dev "
    "(datasets.tiny.dev_from_train: 0.1; null: leave train as it is)"
)
CHOSEN = {"models": {"de_bm25neg": {"train": {"choose": "dev"}}}}
KEYS = {
    "a model is chosen on dev": CHOSEN,
    "a model is validated on dev": {"models": {"ce_bm25neg": {"train": {"validate_every": 2}}}},
    "BM25 is tuned": {"sparse": {"tuned": {"tuned": True}}},
    "weights are tuned": {
        "fusions": {"both": {"of": ["bm25", "de_bm25neg"], "method": "weighted"}}
    },
    "a judge is calibrated on dev": {
        "models": {"rocketqav2": {"candidates": {"denoise": {"calibrate": "dev"}}}}
    },
    "a pipeline is chosen": {"pipelines": {"best": {"of": ["bm25", "de_bm25neg"]}}},
}


@pytest.fixture
def plan(tmp_path, encoder_folder, documents):
    """`plan(splits, keys)`: the plan of the tiny project with these splits and further keys."""

    def make(splits, keys):
        write_beir(tmp_path / "beir", documents, splits)
        return Plan(
            merged(merged(gathered([], ROOT), tiny_config(tmp_path, encoder_folder)), keys), ROOT
        )

    return make


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_share_of_train_becomes_dev_in_the_dataset_itself(plan, keys):
    planned = plan(("train", "test"), keys)
    assert planned.check("baseline") == [LINE]
    params = planned.planner.dataset().values
    assert (params["dev_from_train"], params["dev_from_train_most"]) == (0.1, 500)
    assert "counted_shares" not in params  # which would be another key
    assert (
        planned.planner.run("bm25", "dev", "here").upstream["dataset"] is planned.planner.dataset()
    )


@pytest.mark.parametrize(
    ("splits", "keys"),
    [
        (("train", "test"), {}),  # the papers' recipes choose nothing on dev
        (("train", "dev", "test"), CHOSEN),
        (("test",), CHOSEN),
        (("train", "test"), merged(CHOSEN, {"datasets": {"tiny": {"dev_from_train": None}}})),
        (
            ("train", "test"),
            merged(CHOSEN, {"train_on": "pydocs", "datasets": {"pydocs": {"source": "pydocs"}}}),
        ),
    ],
)
def test_otherwise_datasets_are_as_they_were(plan, splits, keys):
    planned = plan(splits, keys)
    assert planned.planner.ctx.notices == {}
    params = planned.planner.dataset().values
    assert params["dev_from_train"] is None
    assert "dev_from_train_most" not in params  # keys of datasets are those of before


def test_ones_own_share_stays(plan):
    own = {"datasets": {"tiny": {"dev_from_train": 0.3}}}
    planned = plan(("train", "test"), merged(CHOSEN, own))
    assert planned.planner.ctx.notices == {}
    assert planned.planner.dataset().values["dev_from_train"] == 0.3


def test_ones_own_limit_stays(plan):
    own = {"datasets": {"tiny": {"dev_from_train_most": 5}}}
    planned = plan(("train", "test"), merged(CHOSEN, own))
    params = planned.planner.dataset().values
    assert (params["dev_from_train"], params["dev_from_train_most"]) == (0.1, 5)


def test_what_was_drawn_to_choose_on_is_not_what_is_reported(plan):
    assert plan(("train",), CHOSEN).split == "test"


def test_nothing_is_said_of_tables_and_sweeps_that_are_not_made(plan):
    """Tables of papers are planned, too, and some of their rows choose on dev."""
    sweep = {"grid": {"models.de_bm25neg.train.choose": ["last", "dev"]}, "systems": ["de_bm25neg"]}
    planned = plan(("train", "test"), {"sweeps": {"choices": sweep}})
    assert planned.check("baseline") == []
    assert planned.check("sweep_choices") == planned.check("sweeps") == [LINE]


def test_a_share_of_a_train_that_is_drawn_itself_is_counted(plan):
    drawing = {"datasets": {"tiny": {"train_from_test": 0.2}}}
    planned = plan(("test",), merged(CHOSEN, drawing))
    assert planned.planner.dataset().values["counted_shares"] == ["dev_from_train"]
