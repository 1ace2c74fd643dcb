"""The last layer of encoders that `cls` pools computes first tokens alone, on a CPU."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from tandem.config.settings import Execution
from tandem.extras import frozen_layers
from tandem.extras.frozen_layers import BERT_FAMILIES
from tandem.models.acceleration import accelerate
from tandem.models.cross import CrossEncoder
from tandem.models.device import is_onednn_used
from tandem.models.dual import DualEncoder
from tandem.models.encoding import encode_and_pool
from tandem.models.ragged import Ragged
from tandem.models.saving import DualShape
from tandem.models.tokens import Template

pytestmark = pytest.mark.skipif(not is_onednn_used(), reason="of frozen layers on a CPU")
TEMPLATE = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0)


@pytest.fixture(params=BERT_FAMILIES)
def encoder(request):
    """A tiny encoder of a family."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        request.param, vocab_size=60, hidden_size=32, embedding_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=64, max_position_embeddings=40,
    )  # fmt: skip
    return AutoModel.from_config(config).eval()


def is_narrow(encoder):
    return getattr(encoder.encoder.layer[-1], "is_narrow", False)


def draw_texts(*lengths):
    torch.manual_seed(1)
    return Ragged.of([torch.randint(4, 60, (length,)).numpy() for length in lengths])


@pytest.mark.parametrize("mode", ["fp32", "bf16"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_stay_what_they_are(encoder, pooling, mode):
    texts = draw_texts(6, 11, 3)
    with torch.inference_mode():
        inputs = TEMPLATE.single_inputs(texts)
        wanted = encode_and_pool(encoder, inputs, pooling, "fp32", None, 4)

    model = DualEncoder(encoder, encoder, DualShape(True, pooling, False, 1.0))
    for _ in ("once", "again"):
        accelerate(model, Execution(), 2048, mode, training=False)
    assert is_narrow(encoder) == (pooling == "cls")
    with torch.inference_mode():
        vectors = model.encode("query", texts, TEMPLATE, mode)
    torch.testing.assert_close(vectors, wanted, atol=1e-6 if mode == "fp32" else 0.05, rtol=0)


@pytest.mark.parametrize("threads", [1, 3])
def test_no_bit_is_another_than_of_whole_layers(encoder, threads, monkeypatch):
    texts = draw_texts(6, 11, 3, 20)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    vectors = []
    try:
        for narrows in (True, False):
            monkeypatch.setattr(frozen_layers, "_reads_first_token", lambda _, is_so=narrows: is_so)
            own = copy.deepcopy(encoder)
            model = DualEncoder(own, own, DualShape(True, "cls", False, 1.0))
            accelerate(model, Execution(), 2048, "fp32", training=False)
            assert is_narrow(own) == (not vectors)
            with torch.inference_mode():
                vectors.append(model.encode("query", texts, TEMPLATE, "fp32"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*vectors)


def test_a_pair_has_the_same_score_in_any_company(encoder):
    queries, passages = draw_texts(3, 4, 5), draw_texts(9, 8, 7)
    model = CrossEncoder(encoder, "cls")
    with torch.inference_mode():
        wanted = copy.deepcopy(model).eval()(queries, passages, TEMPLATE, "fp32")

    accelerate(model, Execution(), 2048, "fp32", training=False)
    assert is_narrow(encoder)
    scores = model.score(queries, passages, TEMPLATE, "fp32", 2048)
    assert abs(scores - wanted.numpy()).max() < 1e-6
    for row in range(3):
        only = np.array([row])
        alone = model.score(queries.take(only), passages.take(only), TEMPLATE, "fp32", 2048)
        assert alone == scores[row]


def test_training_reads_whole_layers(encoder):
    model = CrossEncoder(encoder, "cls")
    accelerate(model, Execution(), 2048, "fp32", training=True)
    assert not is_narrow(encoder)
