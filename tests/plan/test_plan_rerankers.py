"""A published re-ranker stands wherever a trained cross-encoder does: system, start, teacher, judge, ensemble."""

import json
import shutil
from pathlib import Path

import pytest

from tandem.errors import UserError
from tandem.plan.plan import Plan

ROOT = Path(__file__).parents[2]
HUB = {"source": "hub", "name": "org/mini", "revision": "0" * 40}


@pytest.fixture
def folder(encoder_folder, tmp_path):
    """A folder of the form of a published cross-encoder, as far as planning reads it."""
    folder = shutil.copytree(encoder_folder, tmp_path / "mini")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def planned(configured):
    """`planned(models, entry, **keys)`: the plan of the default with further models and the re-ranker `mini`."""

    def make(models=None, entry=HUB, name="mini", **keys):
        config = configured()
        config["models"] |= models or {}
        return Plan({**config, "rerankers": {name: entry}, **keys}, ROOT)

    return make


def test_it_reranks_with_token_ids_of_its_own(planned):
    plan = planned()
    stage = plan.planner.run("bm25+mini", "test", "here")
    assert (stage.kind, stage.name) == ("rerank", "bm25+mini.test")
    model, tokens = stage.upstream["model"], stage.upstream["tokens"]
    assert (model.kind, model.name, model.values) == ("reranker", "mini", {})
    assert model.upstream["encoder"] is tokens.upstream["encoder"]
    assert model.upstream["encoder"].values["name"] == "org/mini"
    trained = plan.planner.run("bm25+ce_bm25neg", "test", "here")
    assert stage.values == trained.values
    assert stage.upstream.keys() == trained.upstream.keys()


def test_without_an_entry_its_folder_or_its_name_on_the_hub_leads_to_one(planned, folder):
    planner = planned().planner
    for name in (str(folder), "org/other", "minilm"):
        with pytest.raises(UserError, match="cross-encoder is an entry of rerankers"):
            planner.run(f"bm25+{name}", "test", "here")


def test_it_starts_teaches_judges_and_joins_an_ensemble(planned):
    models = {
        "tuned": {"like": "ce_bm25neg", "init": "mini", "pooling": None},
        "denoised": {"like": "rocketqav2", "candidates": {"denoise": {"by": "mini"}}},
        "taught": {"like": "de_bm25neg", "train": {"distil": {"from": "mini"}}},
        "joint": {"like": "rocketqav2", "init": {"reranker": "mini"}},
    }
    planner = planned(models, ensembles={"both": {"of": ["mini", "ce_bm25neg"]}}).planner
    mini = planner.model("mini", "here")
    tuned = planner.model("tuned", "here")
    assert tuned.upstream["start"] is mini
    assert tuned.values["pooling"] == "classifier"
    assert tuned.upstream["tokens"].upstream["encoder"] is mini.upstream["encoder"]
    assert planner.model("denoised", "here").upstream["candidates"].upstream["judge.0"] is mini
    assert planner.model("taught", "here").upstream["teacher"].upstream["judge.0"] is mini
    joint = planner.model("joint", "here")
    assert joint.upstream["reranker"] is mini
    assert joint.upstream["cross_tokens"].upstream["encoder"] is mini.upstream["encoder"]
    assert planner.run("bm25+both", "test", "here").upstream["judge.0"] is mini


def test_a_family_head_may_be_learned_from_an_encoder(planned):
    model = planned({"own_head": {"like": "ce_bm25neg", "pooling": "classifier"}}).planner.model(
        "own_head", "here"
    )
    assert model.values["pooling"] == "classifier"


def test_the_default_keeps_its_keys_beside_it(planned, configured):
    plain = Plan(configured(), ROOT).tables["summary"]
    assert [stage.key for _, stage in planned().tables["summary"]] == [
        stage.key for _, stage in plain
    ]


def test_a_folder_is_checked_before_anything_runs(planned, folder):
    stage = planned(entry={"source": "folder", "path": str(folder)}).planner.model("mini", "here")
    assert stage.upstream["encoder"].execution["path"] == str(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    with pytest.raises(
        UserError,
        match="config.json: architectures is BertModel; allowed: …ForSequenceClassification",
    ):
        planned(entry={"source": "folder", "path": str(folder)})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        UserError, match="model.safetensors is missing .*only safetensors are loaded"
    ):
        planned(entry={"source": "folder", "path": str(folder)})


@pytest.mark.parametrize(
    ("models", "keys", "line"),
    [
        (
            {},
            {"name": "ce_deneg"},
            "rerankers.ce_deneg has the name of models.ce_deneg; name it otherwise",
        ),
        (
            {},
            {"name": "minilm"},
            "rerankers.minilm has the name of encoders.minilm; name it otherwise",
        ),
        (
            {},
            {"entry": HUB | {"layers": 2}},
            "rerankers.mini.layers is 2, but a re-ranker is taken whole; leave it out",
        ),
        (
            {"tuned": {"like": "ce_bm25neg", "init": "mini", "pooling": "mean"}},
            {},
            "models.tuned.pooling is mean, but mini has classifier; leave it out",
        ),
        (
            {"de": {"like": "de_bm25neg", "init": "mini"}},
            {},
            "models.de.init: mini is a cross model, needed is dual or joint",
        ),
        (
            {"ce": {"like": "ce_bm25neg", "init": "mni"}},
            {},
            "models.ce.init: mni is neither a model nor an encoder",
        ),
    ],
)
def test_a_mistake_is_one_line(planned, models, keys, line):
    with pytest.raises(UserError) as error:
        planned(models, **keys)
    assert line in str(error.value)
