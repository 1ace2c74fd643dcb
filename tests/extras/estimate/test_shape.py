"""An encoder's weights and operations, counted by hand from its sizes, against the encoder itself."""

import json

import pytest
import torch
from pytest import approx
from torch.utils.flop_counter import FlopCounterMode

from tandem.models.hub import load_encoder
from tandem.plan.sizes import EncoderShape


@pytest.fixture
def shape(encoder_folder):
    return EncoderShape.of(json.loads((encoder_folder / "config.json").read_text()))


def test_weights_are_the_encoders_own(shape, encoder_folder):
    # two segments and the embeddings' norm: 4 h
    assert shape.parameters == sum(p.numel() for p in load_encoder(encoder_folder).parameters())


@pytest.mark.parametrize(("texts", "length"), [(1, 8), (3, 20)])
def test_operations_are_those_of_the_matrix_products(shape, encoder_folder, texts, length):
    model = load_encoder(encoder_folder).eval()
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones(texts, length, dtype=torch.int64))
    assert shape.forward(texts, length) == counter.get_total_flops()


def test_bert_base():
    base = EncoderShape(layers=12, hidden=768, feed_forward=3072, vocabulary=30522)
    assert base.parameters == 108_891_648  # BertModel without its pooling layer
    # 85 million weights in matrices, two operations each, and 4 · 128 · 768 per layer for attention
    assert base.forward(1, 128) == approx(128 * (2 * 84_934_656 + 12 * 4 * 128 * 768))


def test_a_configuration_without_layers_is_named():
    with pytest.raises(KeyError, match="num_hidden_layers"):
        EncoderShape.of({"hidden_size": 8})
