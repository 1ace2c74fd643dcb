"""Weights of terms from parts of the vocabulary, one by one, are bit for bit those from the logits of all terms."""

import math

import numpy as np
import pytest
import torch
from pytest import approx
from tiny_sparse import start
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM

from tandem.config.settings import Execution
from tandem.contrib.term_weights.splade import LINEAR_HEADS, split_layer, weigh_terms_by_parts
from tandem.models.acceleration import accelerate
from tandem.models.device import is_onednn_used, rows_change_bits
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

TEXTS = [
    "The lynx eats hares and roe deer.",
    "an owl",
    "The owl turns its head far around, it is a night bird.",
]
onednn = pytest.mark.skipif(not is_onednn_used(), reason="PyTorch without oneDNN, or a GPU")
without_amx = pytest.mark.skipif(
    rows_change_bits("bf16"), reason="a CPU with AMX, whose bits depend on the shape"
)


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_weights_by_hand(pooling):
    # Logits x, 2x - 1 and -x of tokens 0.5, 1 and padding 7; a text without tokens.
    layer = nn.Linear(1, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [2.0], [-1.0]]))
        layer.bias.copy_(torch.tensor([0.0, -1.0, 0.0]))
    states = torch.tensor([[[0.5], [1.0], [7.0]], [[7.0], [7.0], [7.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    weights = weigh_terms_by_parts(states, mask, list(split_layer(layer, 2)), pooling)
    first = {
        "max": [math.log(2), math.log(2), 0.0],
        "sum": [math.log(1.5) + math.log(2), math.log(2), 0.0],
    }
    assert weights.tolist() == [approx(first[pooling]), [0.0, 0.0, 0.0]]


@onednn
@pytest.mark.parametrize("mode", ["fp32", pytest.param("bf16", marks=without_amx)])
@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("family", LINEAR_HEADS)
def test_every_family_has_the_bits_of_whole_logits(
    family, pooling, mode, family_folder, tmp_path, monkeypatch
):
    tokenizer = load_tokenizer(family_folder(family))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        AutoModelForMaskedLM.from_config(
            AutoConfig.from_pretrained(family_folder(family))
        ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ids = [np.array(row) for row in tokenizer(TEXTS, add_special_tokens=False)["input_ids"]]

    def weights():
        model = start(tmp_path, pooling=pooling).eval()
        accelerate(model, Execution(), 64, mode, training=False)
        with torch.inference_mode():
            return len(model.last_layers), model.encode(
                "passage", ids, Template.of(tokenizer), mode, 8
            )

    monkeypatch.setattr("tandem.contrib.term_weights.splade.TERMS", 64)
    parts, by_parts = weights()
    monkeypatch.setattr("tandem.contrib.term_weights.splade.LINEAR_HEADS", ())
    no_parts, whole = weights()
    assert (parts, no_parts) == (2, 0)
    assert torch.equal(by_parts, whole)
    assert len(by_parts.unique()) > 100


@onednn
def test_a_head_of_another_form_stays_whole(family_folder, tmp_path):
    folder = family_folder("deberta-v2")
    config = AutoConfig.from_pretrained(folder, legacy=False)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    load_tokenizer(folder).save_pretrained(tmp_path)
    model = start(tmp_path).eval()
    accelerate(model, Execution(), 64, "fp32", training=False)
    assert not model.last_layers
