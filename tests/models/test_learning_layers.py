"""Encoders whose lower layers do not learn: in every family the upper ones get the gradient they had."""

import re

import pytest
import torch
import transformers
from tiny_encoders import ENCODERS

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.learning import freeze_layers, set_dropout
from tandem.models.tokens import Template

# ALBERT has one layer, which it passes through several times.
FAMILIES = (
    *(family for family in ENCODERS if family != "albert"),
    "t5",
    "qwen3",
    "llama",
    "mistral",
    "gemma3_text",
)
TOWERS = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}
TEXTS = [
    "The lynx eats hares and roe deer.",
    "an owl",
    "The owl turns its head far around, it is a night bird.",
]


def gradients(folder, count):
    """What each parameter gets as a gradient, and the layers' outputs, with so many layers of three frozen."""
    model, outputs = DualEncoder.start(folder, **TOWERS).eval(), []
    if count:
        freeze_layers(model, count)
    accelerate(model, Execution(), 64, "fp32", training=True)
    encoder = model.towers["passage"]
    for layers in (
        module for module in encoder.modules() if isinstance(module, torch.nn.ModuleList)
    ):
        for layer in layers if len(layers) == 3 else ():
            layer.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    tokenizer = load_tokenizer(folder)
    ids = tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
    vectors = model.encode("passage", ids, Template.of(tokenizer), "fp32", 8)
    (vectors * torch.arange(vectors.numel()).view_as(vectors).cos()).sum().backward()
    firsts = [output[0] if isinstance(output, tuple) else output for output in outputs]
    return {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}, firsts


@pytest.mark.parametrize("family", FAMILIES)
def test_the_backward_pass_ends_above_the_frozen_layers(family, family_folder):
    whole, _ = gradients(family_folder(family), 0)
    upper, outputs = gradients(family_folder(family), 2)
    assert [output.requires_grad for output in outputs] == [False, False, True]
    last = {
        name
        for name in whole
        if ".2." in name or name.endswith(("final_norm.weight", "final_layer_norm.weight"))
    }
    assert upper.keys() == last | {name for name in whole if name == "norm.weight"}
    for name, gradient in upper.items():
        torch.testing.assert_close(
            gradient, whole[name], rtol=1e-5, atol=1e-5 * float(whole[name].abs().max())
        )


@pytest.mark.parametrize("count", [3, 4])
def test_as_many_layers_as_there_are_is_refused(count, family_folder):
    with pytest.raises(
        UserError,
        match=rf"freeze_layers is {count}, but the encoder has 3 layers; allowed: below 3",
    ):
        freeze_layers(load_encoder(family_folder("bert")), count)


def test_shared_layers_are_refused(family_folder):
    with pytest.raises(
        UserError, match="freeze_layers is 1, but layers of albert share their weights; set it to 0"
    ):
        freeze_layers(load_encoder(family_folder("albert")), 1)


def make_encoder_with_decoder(family):
    """A tiny model with three layers on each side."""
    ids = {"vocab_size": 60, "pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2}
    if family == "t5":
        size = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 3, "num_heads": 4}
        config = transformers.T5Config(decoder_start_token_id=0, **size, **ids)
        return transformers.T5ForConditionalGeneration(config)
    if family == "bart":
        stack = {"layers": 3, "attention_heads": 4, "ffn_dim": 64}
        size = {
            f"{side}_{key}": value
            for side in ("encoder", "decoder")
            for key, value in stack.items()
        }
        config = transformers.BartConfig(d_model=32, decoder_start_token_id=3, **size, **ids)
        return transformers.BartForConditionalGeneration(config)
    size = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }
    sides = [transformers.BertConfig(**size, **ids) for _ in range(2)]
    both = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        *sides, decoder_start_token_id=2, pad_token_id=0
    )
    return transformers.EncoderDecoderModel(both)


@pytest.mark.parametrize(
    ("family", "embeddings"),
    [
        ("t5", r"shared\."),
        ("bart", r"model\.(shared|encoder\.(embed_positions|layernorm_embedding))\."),
        ("bert2bert", r"encoder\.embeddings\."),
    ],
)
def test_a_decoder_behind_frozen_layers_learns(family, embeddings):
    torch.manual_seed(1)
    model = make_encoder_with_decoder(family)
    freeze_layers(model, 2)
    ids = torch.tensor([[5, 9, 31, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    # T5 has the positions of all layers in the first
    frozen = re.compile(rf"({embeddings}|(model\.)?encoder\.(encoder\.)?(block|layers?)\.[01]\.)")
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (frozen.match(name) is None), name
    learnt = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert any("decoder" in name for name in learnt)
    assert not any(frozen.match(name) for name in learnt)
    with pytest.raises(UserError, match="freeze_layers is 3, but the encoder has 3 layers"):
        freeze_layers(make_encoder_with_decoder(family), 3)


def test_dropout_of_attention_is_set_where_a_configuration_has_a_whole_number(family_folder):
    folder = family_folder("modernbert")
    config = transformers.AutoConfig.from_pretrained(folder, attention_dropout=0)
    assert type(config.attention_dropout) is int
    model = transformers.AutoModel.from_config(config)
    set_dropout(model, 0.25)
    assert {layer.attn.attention_dropout for layer in model.layers} == {0.25}
