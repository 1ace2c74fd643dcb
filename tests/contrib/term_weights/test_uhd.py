"""UHD-BERT: the winners of each token by hand, and a saved model against a loop over transformers' states."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from tandem import ROOT
from tandem.config.settings import Execution
from tandem.contrib.term_weights.uhd import UltraHighDimensional, keep_winners
from tandem.errors import UserError
from tandem.extras.plan import FullPlan
from tandem.models.acceleration import accelerate
from tandem.models.dual import encode_all, load_dual
from tandem.models.hub import load_tokenizer
from tandem.models.saving import DualShape
from tandem.models.tokens import Tokens

# Two tokens of four dimensions, and one that is not of the text.
LOGITS = torch.tensor([[[5.0, 3.0, 1.0, -1.0], [1.0, 4.0, 2.0, -2.0], [9.0, 9.0, 9.0, 9.0]]])
OWN = torch.tensor([[True, True, False]])


def test_the_largest_numbers_of_each_token_win():
    # The first token keeps 5 and 3, the second 4 and 2; of the second dimension the larger counts
    assert keep_winners(LOGITS, OWN, 2).tolist() == [[5.0, 4.0, 2.0, 0.0]]
    # numbers below 0 never win
    assert keep_winners(LOGITS, OWN, 9).tolist() == [[5.0, 4.0, 2.0, 0.0]]
    assert keep_winners(LOGITS.bfloat16(), OWN, 1).dtype == torch.float32


def test_a_gradient_reaches_the_winners_that_count_alone():
    logits = LOGITS.clone().requires_grad_()
    (keep_winners(logits, OWN, 2) * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert logits.grad.tolist() == [[[1.0, 0, 0, 0], [0, 10.0, 100.0, 0], [0, 0, 0, 0]]]


@pytest.fixture
def saved(encoder_folder, tmp_path):
    """`saved(**options)`: a saved model with two towers whose layers differ, as it is loaded again."""

    def make(**options):
        shape = {"representation": {"type": "uhd", "width": 500, "winners": 3} | options}
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = UltraHighDimensional.start(encoder_folder, False, "max", False, 1.0, **shape)
        model.layers("query")[0].linear.bias.data += torch.arange(500) / 500
        model.save(tmp_path, load_tokenizer(encoder_folder))
        return load_dual(tmp_path)

    return make


@pytest.mark.parametrize(
    "options", [{}, {"layers": [2, 1]}], ids=["the last layer", "a bucket a layer"]
)
def test_weights_equal_a_loop_over_transformers_states(
    options, saved, tokens, tmp_path, monkeypatch
):
    opened, model = Tokens.open(tokens), saved(binary=False, **options).eval()
    monkeypatch.setattr("tandem.contrib.term_weights.splade.LOGITS", 1)  # one text at a time
    for side, texts in (("query", opened.queries), ("passage", opened.passages)):
        theirs = AutoModel.from_pretrained(tmp_path / side).eval()
        with torch.inference_mode():
            result = model.encode(side, texts.take(np.arange(4)), opened.template, "fp32")
        for row in range(4):
            ids = torch.tensor(
                [*opened.template.single[0], *texts[row].tolist(), *opened.template.single[1]]
            )
            buckets = []
            for number, layer in zip(options.get("layers", [-1]), model.layers(side), strict=True):
                buckets.append(torch.zeros(500))
                with torch.inference_mode():
                    for state in theirs(ids[None], output_hidden_states=True).hidden_states[number][
                        0, 1:-1
                    ]:
                        numbers = layer.linear(state)
                        for at in numbers.argsort(descending=True)[:3]:
                            buckets[-1][at] = max(buckets[-1][at], numbers[at])
            assert torch.allclose(result[row], torch.cat(buckets), atol=1e-5)
    described = {"type": "uhd", "width": 500, "winners": 3, "binary": False, **options}
    assert DualShape.read(tmp_path).representation == described


def test_buckets_of_layers_are_the_same_when_accelerated(saved, tokens):
    opened, model = Tokens.open(tokens), saved(binary=False, layers=[2, 1]).eval()
    options = "passage", opened.passages, opened.template, "fp32", 256
    before = encode_all(model, *options)
    accelerate(model, Execution(attention="padded"), 256, "fp32", training=False)
    assert torch.allclose(encode_all(model, *options), before, atol=1e-5)


def test_a_bucket_of_a_layer_that_is_not_there_is_refused(saved):
    with pytest.raises(
        UserError, match=r"representation.layers names layer 3; allowed: 1 to 2, the encoder's"
    ):
        saved(layers=[3])


def test_weights_are_1_except_while_it_learns(saved, tokens):
    opened, model = Tokens.open(tokens), saved().eval()
    rows = encode_all(model, "passage", opened.passages, opened.template, "fp32", 256)
    assert rows.unique().tolist() == [0.0, 1.0]
    learning = encode_all(model.train(), "passage", opened.passages, opened.template, "fp32", 256)
    assert len(learning.unique()) > 100
    counts = (rows > 0).sum(1)
    assert 0 < counts.max() <= 3 * np.diff(opened.passages.offsets).max()


def test_a_layer_that_the_encoder_lacks_is_refused_in_planning(configured):
    """The default's encoder has 6 layers."""
    key = "models.de_bm25neg.representation"
    FullPlan(configured(key, {"type": "uhd", "layers": [2, 6]}), ROOT)
    line = rf"{key}.layers names layer 7; allowed: 1 to 6, the encoder's"
    with pytest.raises(UserError, match=line) as error:
        FullPlan(configured(key, {"type": "uhd", "layers": [2, 7]}), ROOT)
    assert "\n" not in str(error.value)
