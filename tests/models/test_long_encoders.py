"""Encoders of long inputs: their vectors are transformers' own, whatever was read before and beside a text."""

import numpy as np
import pytest
import torch
from tiny_project import ROOT
from transformers import (
    AutoModel,
    BertTokenizer,
    BigBirdConfig,
    BigBirdModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
)

from tandem.models.dual import DualEncoder
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

SIZE = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.3,
    "max_position_embeddings": 4100,
    "pad_token_id": 0,
}
# Short texts make transformers' BigBird give up its sparse attention, so what is compared with attends in full.
MODELS = {
    "longformer": lambda: LongformerModel(LongformerConfig(**SIZE, attention_window=8)),
    "bigbird": lambda: BigBirdModel(BigBirdConfig(**SIZE, attention_type="block_sparse", block_size=4)),
    "modernbert": lambda: ModernBertModel(
        ModernBertConfig(**SIZE, local_attention=8, global_attn_every_n_layers=3)
    ),
}  # fmt: skip
AS_IT_IS_READ = {"bigbird": {"attention_type": "original_full"}}
LENGTHS = (4000, 300, 37, 5)


@pytest.fixture(scope="module", params=MODELS)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    folder = tmp_path_factory.mktemp(family)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        MODELS[family]().save_pretrained(folder)
    pieces = (ROOT / "tests/tiny_vocabulary.txt").read_text(encoding="utf-8").splitlines()
    BertTokenizer(vocab={piece: at for at, piece in enumerate(pieces)}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts():
    draw = np.random.default_rng(1)
    return [draw.integers(10, 390, length) for length in LENGTHS]


def test_vectors_are_those_of_transformers(family, folder, texts):
    theirs = AutoModel.from_pretrained(folder, **AS_IT_IS_READ.get(family, {})).eval()
    template = Template.of(load_tokenizer(folder))
    model = DualEncoder.start(folder, True, "mean", False, 1.0).eval()
    for text in texts:
        ids = torch.tensor([[*template.single[0], *text, *template.single[1]]])
        with torch.inference_mode():
            states = theirs(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
            ours = model.encode("passage", [text], template, "fp32")
        torch.testing.assert_close(ours[0], states[0].mean(0), atol=1e-4, rtol=1e-3)


def test_a_vector_depends_on_no_text_before_or_beside_it(folder, texts, tmp_path):
    template = Template.of(load_tokenizer(folder))
    model = DualEncoder.start(folder, True, "mean", False, 1.0).eval()
    model.save(tmp_path, load_tokenizer(folder))
    # one that has read nothing yet, as a shard that begins with the long ones
    fresh = DualEncoder.load(tmp_path).eval()
    some = texts[1:]
    with torch.inference_mode():
        first = fresh.encode("passage", some[:1], template, "fp32")
        fresh.encode("passage", some[2:], template, "fp32")
        after = fresh.encode("passage", some[:1], template, "fp32")
        together = model.encode("passage", some, template, "fp32", 8)
    assert torch.equal(first, after)
    torch.testing.assert_close(first[0], together[0], atol=1e-4, rtol=1e-3)
    alone = model.encode("passage", some[2:], template, "fp32", 8).detach()
    torch.testing.assert_close(alone[0], together[2], atol=1e-4, rtol=1e-3)
