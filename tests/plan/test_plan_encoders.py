"""Encoders: what is part of a key, and what is not."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from messages import unknown_key

from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stage(configured):
    """`stage(**keys)`: the stage of an encoder of the hub, and of a model that starts from it."""

    def plan(**keys):
        config = configured(
            "encoders",
            {
                "mine": {
                    "source": "hub",
                    "name": "org/mine",
                    "revision": "0" * 40,
                    "pooling": "mean",
                }
                | keys
            },
        )
        planner = Plan(config | {"encoder": "mine"}, ROOT).planner
        return planner.encoder("mine"), planner.model("de_bm25neg", "here")

    return plan


def test_layers_make_another_encoder_and_other_models_of_it(stage):
    whole, six = stage(), stage(layers=6)
    assert [part.digest for part in stage(layers=None)] == [part.digest for part in whole]
    assert six[0].values["layers"] == 6
    assert six[0].digest != whole[0].digest
    assert six[1].digest != whole[1].digest
    with pytest.raises(UserError, match=r"encoders.mine.layers is 0; allowed: ≥ 1"):
        stage(layers=0)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"source": "folder"}, "encoders.mine.path is missing; source folder needs it"),
        (
            {"source": "hub", "revision": "main"},
            "encoders.mine.name is missing; source hub needs it",
        ),
        (
            {"source": "package", "folder": "model"},
            "encoders.mine.package is missing; source package needs it",
        ),
        (
            {"source": "folder", "path": "here", "revision": "v2"},
            "encoders.mine.revision is v2, but source folder has path, obtain; leave it out, or set it to null",
        ),
        (
            {"source": "hub", "name": "org/mine", "path": "here"},
            "encoders.mine.path is here, but source hub has name, revision; leave it out, or set it to null",
        ),
    ],
)
def test_each_source_has_its_own_keys(configured, entry, line):
    with pytest.raises(UserError, match=line):
        Plan(configured("encoders", {"mine": entry}), ROOT)


def test_the_weights_of_a_folder_are_those_that_the_entry_names(configured, encoder_folder):
    entry = {"source": "folder", "path": str(encoder_folder), "pooling": "mean"}

    def plan(digest):
        return Plan(
            configured("encoders", {"mine": entry | {"sha256": digest}}), ROOT
        ).planner.encoder("mine")

    weights = plan(None).values["sha256"]
    assert plan(weights).digest == plan(None).digest
    with pytest.raises(
        UserError, match=f"encoders.mine.sha256 is {'0' * 64}, but the weights of .* have {weights}"
    ):
        plan("0" * 64)


def test_a_missing_folder_names_the_command_that_makes_it(configured, encoder_folder, tmp_path):
    entry = {"source": "folder", "path": str(tmp_path / "mine"), "obtain": "python make_mine.py"}

    def plan():
        return Plan(configured("encoders", {"mine": entry}), ROOT).planner.encoder("mine")

    with pytest.raises(UserError, match=r"/mine: no such folder; get it by: python make_mine.py$"):
        plan()
    shutil.copytree(encoder_folder, tmp_path / "mine")
    with_command = plan()
    del entry["obtain"]
    assert plan().digest == with_command.digest


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "config.json", "2_Dense/model.safetensors", "2_Dense_48/config.json"]
)
def test_folders_of_the_same_weights_and_other_files_are_two_encoders(
    configured, encoder_folder, tmp_path, name
):
    folder = shutil.copytree(encoder_folder, tmp_path / "mine")
    for layer in ("2_Dense/model.safetensors", "2_Dense_48/config.json"):
        (folder / layer).parent.mkdir()
        (folder / layer).write_text("a layer")
    entry = {"source": "folder", "path": str(folder), "pooling": "mean"}

    def key() -> str:
        return Plan(configured("encoders", {"mine": entry}), ROOT).planner.encoder("mine").key

    before = key()
    (folder / "README.md").write_text("of no effect")
    assert key() == before
    (folder / name).write_text((folder / name).read_text() + " ")
    assert key() != before


def test_a_licence_is_told_and_changes_no_key(stage):
    without, licensed = stage()[0], stage(licence="MIT")[0]
    assert licensed.digest == without.digest
    assert "--run.licence MIT" in licensed.how


def test_lora_is_part_of_the_key_and_its_absence_is_not(configured):
    def model(lora):
        return Plan(configured("models.de_bm25neg.lora", lora), ROOT).planner.model(
            "de_bm25neg", "here"
        )

    plain = Plan(configured(), ROOT).planner.model("de_bm25neg", "here")
    assert model(None).digest == plain.digest
    adapted = model({"rank": "4"})
    assert adapted.values["lora"] == {"rank": 4, "alpha": 16.0, "dropout": 0.0, "targets": None}
    assert len({adapted.digest, plain.digest, model({"rank": 4, "targets": ["query"]}).digest}) == 3
    with pytest.raises(UserError, match=unknown_key("models.de_bm25neg.lora.ranks", "rank")):
        model({"ranks": 4})


def test_the_catalogue_is_pinned_or_says_main():
    """An entry without a known commit is taken at `main`; the stage `encoder` warns of it."""
    catalogue = {}
    for path in sorted((ROOT / "config/encoders").glob("*.yaml")):
        ((name, entry),) = yaml.safe_load(path.read_text()).items()
        assert name == path.stem
        catalogue[name] = entry
        pinned = entry["revision"] if entry["source"] == "hub" else entry["sha256"]
        assert pinned == "main" or re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", pinned), name
    assert catalogue["bert-base-uncased"]["revision"] != "main"


@pytest.fixture
def planned(configured):
    """`planned(**keys)`: the dual encoder of the default, which starts from an encoder of the hub, and the planner."""

    def plan(**keys):
        entry = {
            "source": "hub",
            "name": "org/mine",
            "revision": "0" * 40,
            "pooling": "mean",
        } | keys
        planner = Plan(configured("encoders", {"mine": entry}) | {"encoder": "mine"}, ROOT).planner
        return planner.model("de_bm25neg", "here"), planner

    return plan


def test_prompts_are_of_the_dual_encoder_alone(planned):
    without, _ = planned()
    dual, planner = planned(prompts={"query": "query: ", "passage": "passage: "})
    assert dual.values["prompts"] == {"query": "query: ", "passage": "passage: "}
    assert dual.upstream["tokens"].values["prompts"] == dual.values["prompts"]
    assert "prompts" not in without.values
    assert "prompts" not in without.upstream["tokens"].values
    cross = planner.run("bm25+ce_bm25neg", "test", "here")
    assert "prompts" not in cross.upstream["tokens"].values
    assert "prompts" not in cross.upstream["model"].values
    system = planner.run("mine", "test", "here")
    for role in ("passages", "queries"):
        assert system.upstream[role].upstream["tokens"].key == dual.upstream["tokens"].key
        assert system.upstream[role].upstream["model"].values["prompts"] == dual.values["prompts"]


def test_fewer_dimensions_and_linear_layers_are_part_of_the_key(planned):
    digests = {
        planned(**keys)[0].digest
        for keys in ({}, {"dim": 16}, {"dim": None}, {"dense": ["2_Dense"]})
    }
    assert len(digests) == 3
    assert planned(dim=16)[0].values["dim"] == 16


def test_what_nobody_describes_is_no_system(configured, encoder_folder):
    config = configured("encoder", str(encoder_folder)) | {"lengths": {"query": 16, "passage": 64}}
    planner = Plan(config, ROOT).planner
    with pytest.raises(
        UserError,
        match="its files do not say how a text's vector is made, .* say pooling: cls, mean",
    ):
        planner.run("encoder", "test", "here")


def test_all_linear_layers_have_two_names(configured):
    def model(lora):
        return Plan(configured("models.de_bm25neg.lora", lora), ROOT).planner.model(
            "de_bm25neg", "here"
        )

    assert model({"targets": "all-linear"}).digest == model({"targets": None}).digest
