"""Stage `model` of cross-encoders that score by what a decoder writes, and of encoders that read a prompt."""

import json
import re

import pytest
import torch
from comparing import interrupt
from test_resume import curves, weights
from tiny_stages import TRAIN

from tandem.config.models import DUO_T5, MONO_T5
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.training import stage

SHAPES = {
    "mono_t5": {"pooling": "decoder", "prompt": MONO_T5, "words": ["the", "is"]},
    "braces": {"pooling": "decoder", "prompt": "{yes} or {}? {query}, {passage}", "words": ["the"]},
    "rank_t5": {
        "pooling": "decoder",
        "prompt": "Query: {query} Document: {passage}",
        "words": ["the"],
    },
    "duo_t5": {"pooling": "decoder", "prompt": DUO_T5, "words": ["the", "is"], "compares": True},
    "mono_bert2bert": {"pooling": "decoder", "prompt": MONO_T5, "words": ["the", "is"]},
    "rank_t5_encoder": {"pooling": "cls", "prompt": "Query: {query} Document: {passage}"},
}


@pytest.fixture
def writing_job(quick_job, new_generator, encoder_decoder):
    """`writing_job(name, out, train)`: a training of four steps from a tiny T5, or from an encoder's layers."""

    def make(name, out, train=None, **execution):
        shape = SHAPES[name]
        train = ({"loss": "pointwise"} if shape.get("compares") else {}) | (train or {})
        start = encoder_decoder if name == "mono_bert2bert" else new_generator
        return quick_job("cross", out, train, shape, more={"start": start}, **execution)

    return make


@pytest.mark.parametrize("name", SHAPES)
def test_interrupted_it_ends_with_the_same_bytes(name, writing_job, monkeypatch):
    steps = {"steps": TRAIN["steps"]}
    whole = writing_job(name, "whole", steps)
    stage.run(whole)
    job = writing_job(name, "broken", steps, checkpoint_seconds=0)
    interrupt(lambda: stage.run(job), 2, monkeypatch)
    stage.run(writing_job(name, "broken", steps))
    assert weights(job.out) == weights(whole.out)
    assert curves(job.out) == curves(whole.out)
    saved = json.loads((whole.out / "cross/cross.json").read_text())
    compares = SHAPES[name].get("compares")
    assert saved == {key: value for key, value in SHAPES[name].items() if key != "compares"} | (
        {"passages": 2} if compares else {}
    )
    first = [row["value"] for row in curves(whole.out) if row["name"] == "loss"]
    assert len(set(first)) > 1


@pytest.mark.parametrize("name", SHAPES)
def test_the_code_in_the_card_gives_the_models_score(name, writing_job, monkeypatch):
    job = writing_job(name, "carded")
    stage.run(job)
    monkeypatch.chdir(job.out)
    blocks = re.findall(r"```python\n(.*?)```", (job.out / "cross/README.md").read_text(), re.S)
    imported = [
        re.search(r"from (tandem|sentence_transformers|transformers)", block)[1] for block in blocks
    ]
    assert imported == (["tandem"] if name == "rank_t5_encoder" else ["tandem", "transformers"])
    scores = []
    for block in blocks:
        names: dict = {}
        exec(block, names)
        scores.append(float(torch.as_tensor(names["scores"]).detach().reshape(())))
    assert scores == pytest.approx([scores[0]] * len(scores), rel=1e-4, abs=1e-5)
    assert scores[0] != 0


def test_a_training_goes_on_from_a_trained_one(writing_job, quick_job):
    from tandem.store.artifact import open_artifact

    first = writing_job("mono_t5", "first")
    stage.run(first)
    again = quick_job(
        "cross",
        "second",
        shape=SHAPES["mono_t5"],
        more={"start": open_artifact(first.out)},
        train={"steps": 1},
    )
    stage.run(again)
    assert (
        CrossEncoder.load(again.out / "cross").options
        == CrossEncoder.load(first.out / "cross").options
    )


def test_adapters_alone_learn_and_are_merged(quick_job, new_generator):
    shape = SHAPES["mono_t5"] | {"lora": {"rank": 2}}
    job = quick_job("cross", "adapted", shape=shape, more={"start": new_generator})
    stage.run(job)
    assert (job.out / "cross/adapter/adapter_config.json").exists()
    CrossEncoder.load(job.out / "cross")


def test_an_encoder_without_a_decoder_is_refused_before_training(quick_job):
    job = quick_job("cross", "refused", shape=SHAPES["mono_t5"])
    with pytest.raises(UserError, match="no decoder"):
        stage.run(job)
    assert not (job.out / "checkpoints").exists()
