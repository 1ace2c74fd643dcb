"""Encoders whose lower layers do not learn: in every family the upper ones get the gradient they had."""

import pytest
import torch
from tiny_encoders import ENCODERS

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder, load_tokenizer
from tandem.models.learning import freeze_layers
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
