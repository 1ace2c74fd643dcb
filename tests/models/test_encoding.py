"""Many texts give each its own vector, in their order."""

import numpy as np
import pytest
import torch

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.acceleration import accelerate
from tandem.models.dual import DualEncoder, encode_all
from tandem.models.ragged import Ragged
from tandem.models.tokens import Template, Tokens


@pytest.fixture
def model(dual_model):
    return DualEncoder.load(dual_model.folder / "dual").eval()


@pytest.mark.parametrize("attention", ["padded", "packed"])
@pytest.mark.parametrize("budget", [1, 64, 100_000])
def test_each_text_gets_its_own_vector(model, tokens, budget, attention):
    opened, counted = Tokens.open(tokens), []
    with torch.inference_mode():
        alone = [
            model.encode("passage", [opened.passages[i]], opened.template, "fp32")
            for i in range(60)
        ]
    accelerate(model, Execution(attention=attention), budget, "fp32", training=False)
    texts = opened.passages.take(np.arange(60))
    vectors = encode_all(
        model,
        "passage",
        texts,
        opened.template,
        "fp32",
        budget,
        on_batch=lambda part: counted.extend(part),
    )
    assert vectors.shape == (60, 32)
    assert torch.allclose(vectors, torch.cat(alone), atol=1e-5 * float(vectors.abs().max()))
    assert sum(counted) == len(texts.ids) + 60 * 2
    assert len(counted) == 60


def test_what_does_not_fit_is_refused_whatever_its_place(model, tokens):
    opened = Tokens.open(tokens)
    texts = opened.passages.take(np.arange(60))
    how = model, "passage", texts, opened.template, "fp32", 64
    assert encode_all(*how, torch.float16).dtype == torch.float16
    for value, pattern in (
        (1e6, r"[\d.e+]+, float16 ends at 65504; train with normalize"),
        (float("nan"), "nan; look for NaN in its weights"),
    ):
        with torch.no_grad():
            model.towers["passage"].encoder.layer[1].output.LayerNorm.weight[3] = value
        with pytest.raises(UserError, match=f"^.*dual/passage: a vector holds {pattern}"):
            encode_all(*how, torch.float16)


@pytest.mark.parametrize("equal", [False, True])
def test_texts_without_any_token_are_zeros(model, equal):
    nothing_around = Template(((), ()), ((), (3,), ()), None, 0)  # as GPT-2's tokenizer
    empty = Ragged.of([np.empty(0, np.int64)] * 2)
    assert (
        encode_all(model, "passage", empty, nothing_around, "fp32", 64, equal=equal).tolist()
        == [[0.0] * 32] * 2
    )
