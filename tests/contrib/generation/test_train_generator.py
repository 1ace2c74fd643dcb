"""Stages `new_generator` and `train_generator`: killed and resumed, adapters, and what is refused."""

import numpy as np
import pytest
import torch
from comparing import interrupt
from several_processes import kill_and_resume, read_curve

from tandem.contrib.generation import train
from tandem.contrib.generation.generators import load_generator
from tandem.contrib.generation.starting import run_new
from tandem.contrib.generation.train import read_pairs
from tandem.errors import UserError
from tandem.store.artifact import open_artifact
from tandem.store.files import sha256

WEIGHTS = "hf/model.safetensors"
CASES = {
    "adamw": ({}, {}),
    "encoder": ({}, {}),
    "adafactor": ({"optimizer": "adafactor"}, {}),
    "lora": ({"label_smoothing": 0.1}, {"lora": {"rank": 2, "dropout": 0.1}}),
    "qlora": ({}, {"lora": {"rank": 2, "bits": 4}}),
}


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_step_it_ends_with_the_same_bytes(
    case, train_job, encoder_decoder, tmp_path, monkeypatch
):
    how, params = CASES[case]
    start = encoder_decoder if case == "encoder" else None
    whole = train_job(tmp_path / "whole-0000000000", how, start, params)
    train.run(whole)
    for broken in (1, 4):
        out = tmp_path / f"{case}-{broken:010d}"
        job = train_job(out, how, start, params, checkpoint_seconds=0)
        interrupt(lambda job=job: train.run(job), broken, monkeypatch)
        assert not (out / "stage.json").exists()
        train.run(train_job(out, how, start, params))
        assert sha256(out / WEIGHTS) == sha256(whole.out / WEIGHTS)
        assert read_curve(out) == read_curve(whole.out)
        assert not (out / "checkpoints").exists()


def test_killed_by_the_system(train_job, command, tmp_path, capfd):
    whole = train_job(tmp_path / "whole-0000000000", {"steps": 40})
    train.run(whole)
    job = train_job(tmp_path / "killed-0123456789", {"steps": 40}, checkpoint_seconds=0)
    kill_and_resume(job, ["train_generator", *command(job)], train.run, capfd)
    assert sha256(job.out / WEIGHTS) == sha256(whole.out / WEIGHTS)


def test_it_learns_its_pairs_by_heart(generator):
    losses = [row["value"] for row in read_curve(generator.folder) if row["name"] == "loss"]
    assert losses[0] > 4
    assert losses[-1] < 0.2
    assert generator.manifest.facts["pairs"] == 20


def test_pairs_are_passages_and_their_queries(train_job, new_generator, tmp_path):
    model, tokenizer = load_generator(new_generator.folder / "hf")
    pairs = read_pairs(
        train_job(
            tmp_path / "pairs-0000000000", params={"prompt": "what, {passage};", "length": 24}
        ),
        model,
        tokenizer,
    )
    # [CLS] starts the decoder
    assert tokenizer.decode(pairs.tokens.queries[1]) == "what does the heron eat [SEP]"
    source = tokenizer.decode(pairs.tokens.passages[1])
    assert source.startswith("[CLS] what, the heron eats frogs and small fish")
    assert source.endswith("; [SEP]")
    assert max(map(len, (pairs.tokens.passages[row] for row in range(20)))) == 24
    assert pairs.cut > 0


def test_a_new_one_has_the_encoders_words(new_generator, encoder):
    from transformers import AutoModel

    words = (
        AutoModel.from_pretrained(encoder.folder / "hf")
        .get_input_embeddings()
        .weight.detach()
        .numpy()
    )
    model, tokenizer = load_generator(new_generator.folder / "hf")
    own = model.get_input_embeddings().weight.detach().numpy()
    centred = words - words.mean(0)
    np.testing.assert_allclose(own, centred / np.sqrt((centred**2).mean()), rtol=1e-4, atol=1e-5)
    assert model.generation_config.eos_token_id == tokenizer.sep_token_id


def test_what_cannot_be_trained_is_one_line(
    train_job, make_job, encoder, encoder_decoder, tmp_path
):
    with pytest.raises(UserError, match=r"length is 97, but the generator \(bert\) takes 96"):
        train.run(
            train_job(tmp_path / "positions-0000000000", None, encoder_decoder, {"length": 97})
        )
    with pytest.raises(UserError, match=r"no decoder"):
        train.run(train_job(tmp_path / "encoder-0000000000", start=encoder))
    with pytest.raises(UserError, match="prompt alone has"):
        train.run(
            train_job(tmp_path / "long-0000000000", params={"prompt": "word " * 40 + "{passage}"})
        )
    with pytest.raises(UserError, match="heads is 5"):
        params = {"layers": 1, "decoder_layers": 1, "heads": 5, "feed_forward": 8, "seed": 1}
        job = make_job("new_generator", tmp_path / "heads-0000000000", params, {"encoder": encoder})
        run_new(job)
    with pytest.raises(UserError, match="split nothing"):
        train.run(train_job(tmp_path / "split-0000000000", params={"split": "nothing"}))


def test_the_saved_model_is_transformers_own(generator):
    opened = open_artifact(generator.folder)
    model, tokenizer = load_generator(opened.folder / "hf")
    ids = tokenizer(
        [
            "The owl eats voles and beetles, more of them in autumn, when winter is close; a night bird."
        ]
    )
    written = model.generate(input_ids=torch.tensor(ids["input_ids"]), max_new_tokens=12)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == "what does the owl eat"
