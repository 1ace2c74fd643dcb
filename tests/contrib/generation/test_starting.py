"""Stage `encoder_decoder`: an encoder's layers on both sides, as transformers reads them; and what is refused."""

import json
import shutil

import pytest
import torch

from tandem.contrib.generation.generator_folders import DECODING_FAMILIES
from tandem.contrib.generation.generators import load_generator
from tandem.contrib.generation.starting import run_encoder_decoder
from tandem.errors import UserError
from tandem.models.hub import load_encoder
from tandem.store.artifact import open_artifact


@pytest.fixture
def started(make_job, tmp_path):
    """`started(encoder, **params)`: the folder that the stage writes."""

    def make(encoder, **params):
        out = tmp_path / "encoder_decoder-0000000000"
        job = make_job("encoder_decoder", out, {"seed": 3} | params, {"encoder": encoder})
        run_encoder_decoder(job)
        return open_artifact(out).folder / "hf"

    return make


@pytest.fixture
def changed(encoder, tmp_path):
    """`changed(change)`: an encoder's artifact whose folder `change` has been at."""

    def make(change):
        folder = tmp_path / "changed"
        shutil.copytree(encoder.folder, folder)
        change(folder / "hf")
        return open_artifact(folder, verify=False)

    return make


def weights(module):
    return {name: value for name, value in module.state_dict().items() if "pooler" not in name}


def test_both_sides_begin_with_the_encoders_weights(started, encoder):
    own = weights(load_encoder(encoder.folder / "hf"))
    model, tokenizer = load_generator(started(encoder))
    assert weights(model.encoder).keys() == own.keys()
    decoder = weights(model.decoder.bert)
    new = decoder.keys() - own.keys()
    assert {name.split(".")[3] for name in new} == {"crossattention"}
    for name, value in own.items():
        assert torch.equal(model.encoder.state_dict()[name], value)
        assert torch.equal(decoder[name], value)
    for name in new:
        assert torch.equal(decoder[name], own[name.replace("crossattention", "attention")])
    words = model.decoder.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is words
    assert model.config.decoder_start_token_id == tokenizer.cls_token_id
    assert model.generation_config.eos_token_id == tokenizer.sep_token_id


def test_the_encoder_alone_may_start_a_model(started, encoder):
    own = load_encoder(encoder.folder / "hf")
    alone = load_encoder(started(encoder))
    assert alone.config.model_type == "bert"
    assert alone.state_dict().keys() == own.state_dict().keys()
    assert all(torch.equal(alone.state_dict()[name], value) for name, value in weights(own).items())


def test_transformers_reads_it_without_a_weight_that_is_missing(started, encoder):
    from transformers import AutoModelForSeq2SeqLM

    folder = started(encoder)
    model, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.is_encoder_decoder
    assert model.config.decoder.add_cross_attention


def test_the_first_layers_of_each_side(started, encoder):
    own = load_encoder(encoder.folder / "hf")
    model, _ = load_generator(started(encoder, layers=2, decoder_layers=1))
    assert (len(model.encoder.encoder.layer), len(model.decoder.bert.encoder.layer)) == (2, 1)
    first = model.decoder.bert.encoder.layer[0].attention.self.query.weight
    assert torch.equal(first, own.encoder.layer[0].attention.self.query.weight)


def test_a_head_that_has_learned_to_predict_hidden_tokens_is_kept(started, changed):
    from transformers import AutoModelForMaskedLM

    heads = []

    def add_head(folder):
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_pretrained(folder)
        model.save_pretrained(folder)
        heads.append(model.cls.predictions.transform.dense.weight.detach())

    model, _ = load_generator(started(changed(add_head)))
    assert torch.equal(model.decoder.cls.predictions.transform.dense.weight, heads[0])


def of_family(folder, family):
    """Have a folder hold a tiny encoder of another family with the same tokenizer."""
    from transformers import AutoConfig, AutoModel

    size = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 96,
    }  # fmt: skip
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = AutoConfig.for_model(family, vocab_size=vocabulary, pad_token_id=0, **size)
    (folder / "model.safetensors").unlink()
    AutoModel.from_config(config).save_pretrained(folder)


@pytest.mark.parametrize("family", [family for family in DECODING_FAMILIES if family != "bert"])
def test_of_every_family_that_is_allowed_the_decoder_reads_the_encoder(family, started, changed):
    encoder = changed(lambda folder: of_family(folder, family))
    model, _ = load_generator(started(encoder))
    own = weights(load_encoder(encoder.folder / "hf"))
    body = weights(model.decoder.base_model)
    new = body.keys() - own.keys()
    assert all(torch.equal(body[name], value) for name, value in own.items())
    assert new
    assert all("crossattention" in name for name in new)
    ids, start = torch.tensor([[2, 7, 9, 3], [2, 8, 11, 3]]), torch.tensor([[2], [2]])
    first, second = model(input_ids=ids, decoder_input_ids=start).logits[:, 0]
    assert not torch.allclose(first, second)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "distilbert", "model_type is distilbert, whose layers"),
        ("num_hidden_layers", 0, "has no layers"),
    ],
)
def test_an_encoder_that_cannot_decode_is_one_line(key, value, message, started, changed):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    with pytest.raises(UserError, match=message):
        started(changed(change))


def test_more_layers_than_the_encoder_has(started, encoder):
    with pytest.raises(UserError, match=r"decoder_layers is 3, but the encoder has 2"):
        started(encoder, decoder_layers=3)


def test_a_tokenizer_that_ends_no_text(started, changed):
    def without_end(folder):
        path = folder / "tokenizer.json"
        config = json.loads(path.read_text())
        config["post_processor"] = None
        path.write_text(json.dumps(config))
        named = folder / "tokenizer_config.json"
        kept = json.loads(named.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
        named.write_text(json.dumps(kept))

    with pytest.raises(UserError, match="no token behind a text"):
        started(changed(without_end))
