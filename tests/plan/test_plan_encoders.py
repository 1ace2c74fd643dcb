"""Encoders: what is part of a key, and what is not."""

import re
from pathlib import Path

import pytest
import yaml
from messages import unknown_key

from tandem.errors import UserError
from tandem.extras.plan import FullPlan

ROOT = Path(__file__).parents[2]
UNKNOWN = {"ernie-1.0-base-zh", "ernie-2.0-base-en"}  # no commit of these is known here


@pytest.fixture
def stage(configured):
    """`stage(**keys)`: the stage of an encoder of the hub, and of a model that starts from it."""

    def plan(**keys):
        config = configured("encoders", {"mine": {"source": "hub", "name": "org/mine", "revision": "0" * 40} | keys})
        planner = FullPlan(config | {"encoder": "mine"}, ROOT).planner
        return planner.encoder("mine"), planner.model("de_bm25neg", "here")

    return plan


def test_layers_make_another_encoder_and_other_models_of_it(stage):
    whole, six = stage(), stage(layers=6)
    assert [made.digest for made in stage(layers=None)] == [made.digest for made in whole]
    assert six[0].values["layers"] == 6
    assert six[0].digest != whole[0].digest
    assert six[1].digest != whole[1].digest
    with pytest.raises(UserError, match=r"encoders.mine.layers is 0; allowed: ≥ 1"):
        stage(layers=0)


def test_a_licence_is_told_and_changes_no_key(stage):
    without, licensed = stage()[0], stage(licence="MIT")[0]
    assert licensed.digest == without.digest
    assert "--run.licence MIT" in licensed.how


def test_lora_is_part_of_the_key_and_its_absence_is_not(configured):
    def model(lora):
        return FullPlan(configured("models.de_bm25neg.lora", lora), ROOT).planner.model("de_bm25neg", "here")

    plain = FullPlan(configured(), ROOT).planner.model("de_bm25neg", "here")
    assert model(None).digest == plain.digest
    made = model({"rank": "4"})
    assert made.values["lora"] == {"rank": 4, "alpha": 16.0, "dropout": 0.0, "targets": None}
    assert len({made.digest, plain.digest, model({"rank": 4, "targets": ["query"]}).digest}) == 3
    with pytest.raises(UserError, match=unknown_key("models.de_bm25neg.lora.ranks", "rank")):
        model({"ranks": 4})


def test_the_catalogue_is_pinned():
    found = {}
    for path in sorted((ROOT / "config/encoders").glob("*.yaml")):
        ((name, told),) = yaml.safe_load(path.read_text()).items()
        assert name == path.stem
        found[name] = told
    for name, told in found.items():
        pinned = told["revision"] if told["source"] == "hub" else told["sha256"]
        assert (pinned == "main") if name in UNKNOWN else re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", pinned), name
    assert found.keys() >= UNKNOWN
