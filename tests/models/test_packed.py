"""Packed rows against padded inputs: the same vectors, scores and gradients, for every family of encoders."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from tandem.models import encoding as attention
from tandem.models.acceleration import GeluLinear, convert_to_bf16
from tandem.models.cross import CrossEncoder
from tandem.models.device import device
from tandem.models.dual import DualEncoder
from tandem.models.encoding import PACKED_FAMILIES, fill_length, pack_texts
from tandem.models.ragged import split_by_tokens
from tandem.models.saving import DualShape
from tandem.models.tokens import Inputs, Template

pytestmark = pytest.mark.gpu

SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_size": 32,
}
OTHER_SIZES = {"distilbert": {"n_layers": 2, "n_heads": 4, "hidden_dim": 64, "dim": 32}}
BUDGET = 128


@pytest.fixture(scope="module")
def texts():
    """Six texts of 1 to 30 random tokens."""
    rng = np.random.default_rng(0)
    return [rng.integers(4, 90, length) for length in (1, 5, 9, 30, 2, 17)]


@pytest.fixture(params=PACKED_FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def encoder(family):
    """A random encoder of a family in float64, without dropout, and its template."""
    sizes = OTHER_SIZES.get(family, SIZES | {"type_vocab_size": 2})
    config = AutoConfig.for_model(
        family, vocab_size=90, max_position_embeddings=48, pad_token_id=0, **sizes
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModel.from_config(config).double().eval().to(device())
    types = None if family == "distilbert" else (0, 0, 0, 1, 1)
    return model, Template(((2,), (3,)), ((2,), (3, 3), (3,)), types, 0)


def both(model, compute):
    """Values and gradients of every parameter, padded and packed."""
    attention.register()
    results = []
    for name, packed in (("sdpa", None), (attention.PACKED_ATTENTION, BUDGET)):
        for module in model.modules():
            if hasattr(module, "set_attn_implementation"):
                module.set_attn_implementation(name)
        model.packed = packed
        model.zero_grad()
        values = compute(model)
        weights = torch.linspace(-1, 2, values.numel(), dtype=values.dtype, device=values.device)
        (values * weights.view_as(values)).sum().backward()
        results.append(
            (
                values.detach(),
                {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None},
            )
        )
    return results


def assert_equal(padded, packed, atol):
    assert torch.allclose(padded[0], packed[0], atol=atol, rtol=0)
    assert padded[1].keys() == packed[1].keys()
    assert len(padded[1]) > 20
    for name, gradient in padded[1].items():
        assert torch.allclose(gradient, packed[1][name], atol=atol, rtol=atol), name


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_and_gradients_of_a_dual_encoder(encoder, texts, pooling):
    model = DualEncoder(encoder[0], encoder[0], DualShape(True, pooling, True, 1.0))
    assert_equal(
        *both(model, lambda model: model.encode("passage", texts, encoder[1], "fp32")), 1e-10
    )


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_scores_and_gradients_of_a_cross_encoder(encoder, texts, pooling):
    model = CrossEncoder(encoder[0], pooling).double().eval().to(device())
    assert_equal(
        *both(model, lambda model: model(texts[:3] * 2, texts[::-1], encoder[1], "fp32")), 1e-10
    )


@pytest.mark.parametrize("family", ["bert"])
def test_float32_agrees_to_1e_5(encoder, texts, family):
    model = DualEncoder(encoder[0].float(), encoder[0], DualShape(True, "mean", True, 1.0))
    assert_equal(*both(model, lambda model: model.encode("query", texts, encoder[1], "fp32")), 1e-5)


@pytest.mark.parametrize("family", ["bert"])
def test_bf16_goes_through_and_weights_stay_float32(encoder, texts, family):
    model = DualEncoder(encoder[0].float(), encoder[0], DualShape(True, "mean", False, 1.0))
    (exact, gradients), packed = both(
        model, lambda model: model.encode("query", texts, encoder[1], "bf16")
    )
    assert packed[0].dtype == torch.float32
    assert {gradient.dtype for gradient in packed[1].values()} == {torch.float32}
    assert float(torch.nn.functional.cosine_similarity(exact, packed[0]).min()) > 0.999
    assert packed[1].keys() == gradients.keys()
    assert all(bool(gradient.isfinite().all()) for gradient in packed[1].values())


def test_an_encoder_wholly_in_bf16_gives_the_vectors_within_its_rounding(encoder, texts):
    """As a GPU encodes: products with their GELU in one operation, and nothing in float32 between layers."""
    attention.register()
    model = DualEncoder(encoder[0].float(), encoder[0], DualShape(True, "mean", True, 1.0))
    with torch.inference_mode():
        exact = model.encode("passage", texts, encoder[1], "fp32")
        convert_to_bf16(encoder[0])
        encoder[0].set_attn_implementation(attention.PACKED_ATTENTION)
        model.packed = BUDGET
        vectors = model.encode("passage", texts, encoder[1], "bf16")
    assert {weight.dtype for weight in encoder[0].parameters()} == {torch.bfloat16}
    assert sum(isinstance(module, GeluLinear) for module in encoder[0].modules()) == 2
    assert vectors.dtype == torch.float32
    assert float((exact * vectors).sum(1).min()) > 0.999


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_encoder_for_packed_rows_takes_padded_inputs_too(encoder, texts, family):
    attention.register()
    model = DualEncoder(encoder[0], encoder[0], DualShape(True, "mean", False, 1.0))
    with torch.inference_mode():
        before = model.encode("query", texts, encoder[1], "fp32")
        encoder[0].set_attn_implementation(attention.PACKED_ATTENTION)
        assert torch.equal(model.encode("query", texts, encoder[1], "fp32"), before)


@pytest.mark.parametrize("family", ["bert"])
def test_a_saved_encoder_does_not_know_that_it_was_packed(encoder, tmp_path, family):
    attention.register()
    encoder[0].set_attn_implementation(attention.PACKED_ATTENTION)
    encoder[0].save_pretrained(tmp_path)
    assert attention.PACKED_ATTENTION not in (tmp_path / "config.json").read_text()
    assert AutoModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_a_row_by_hand():
    """Texts of 3 and 2 tokens in a row of 8: three tokens of filler, in one text of padding."""
    inputs = Inputs(np.array([2, 7, 3, 2, 3]), np.array([0, 0, 0, 1, 1]), np.array([3, 2]), pad=0)
    config = AutoConfig.for_model("bert", pad_token_id=0)
    row = pack_texts(inputs, 8, config)
    assert row["input_ids"].tolist() == [[2, 7, 3, 2, 3, 0, 0, 0]]
    assert row["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0]]
    assert row["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    assert row["cu_seq_lens_q"].tolist() == [0, 3, 5, 8]
    assert row["cu_seq_lens_q"].dtype == torch.int32
    assert row["max_length_q"] == 128
    # positions behind the padding's; filler of four tokens in texts of at most three
    row = pack_texts(inputs, 9, AutoConfig.for_model("roberta", pad_token_id=1))
    assert row["position_ids"].tolist() == [[2, 3, 4, 2, 3, 2, 3, 4, 2]]
    assert row["cu_seq_lens_q"].tolist() == [0, 3, 5, 8, 9]
    # a full row has no filler
    assert pack_texts(inputs, 5, config)["cu_seq_lens_q"].tolist() == [0, 3, 5]


def test_rows_have_few_lengths():
    assert [fill_length(tokens, 2048) for tokens in (2048, 2047, 1025, 1024, 513, 130, 128, 3)] == [
        2048,
        2048,
        2048,
        1024,
        1024,
        256,
        128,
        128,
    ]
    assert [fill_length(tokens, 2048) for tokens in (2049, 4096, 4097)] == [4096, 4096, 8192]


def test_of_a_longest_text_a_row_says_a_multiple_of_128_and_beyond_512_a_power_of_two():
    config = AutoConfig.for_model("bert", pad_token_id=0)

    def read_longest(tokens):
        inputs = Inputs(np.ones(tokens, np.int64), None, np.array([tokens]), pad=0)
        return pack_texts(inputs, 2048, config)["max_length_q"]

    longest = [read_longest(tokens) for tokens in (128, 129, 384, 385, 512, 513, 1024, 1025, 5000)]
    assert longest == [128, 256, 384, 512, 512, 1024, 1024, 2048, 8192]


@pytest.mark.parametrize("budget", [4096, 32768])
def test_long_texts_meet_few_shapes(budget):
    """A compiled layer has code for each; one a multiple of 8 or of 128 would be hundreds."""
    config = AutoConfig.for_model("bert", pad_token_id=0)
    rng = np.random.default_rng(0)
    lengths = np.minimum(np.exp(rng.normal(6.5, 1, 16384)).astype(int) + 8, 8192)
    shapes = set()
    for batch in split_by_tokens(lengths, budget, packed=True):
        tokens = int(lengths[batch].sum())
        row = pack_texts(Inputs(np.zeros(tokens, int), None, lengths[batch], pad=0), budget, config)
        shapes.add((row["input_ids"].shape[1], row["max_length_q"]))
    assert len(shapes) <= 10


def test_dropped_attention_is_right_on_average_and_follows_the_seed():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 12, 2, 4)
    settings = (torch.tensor([0, 5, 12], dtype=torch.int32), 8, 0.5)
    exact = attention.compute_by_padding(query, key, value, *settings, 0.0)
    drawn = torch.stack(
        [attention.compute_by_padding(query, key, value, *settings, 0.4) for _ in range(2000)]
    )
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.allclose(drawn.mean(0), exact, atol=5 * float(drawn.std(0).max()) / 2000**0.5)
    torch.manual_seed(1)
    once = attention.compute_by_padding(query, key, value, *settings, 0.4)
    torch.manual_seed(1)
    assert torch.equal(attention.compute_by_padding(query, key, value, *settings, 0.4), once)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_kernel_is_called_as_pytorch_declares_it(dropout):
    """Shapes alone, on the device `meta`: the operation and its derivative exist and take what they are given."""
    q, k, v = (
        torch.empty(24, 4, 32, device="meta", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    bounds = torch.empty(5, dtype=torch.int32, device="meta")
    output = attention.compute_by_kernel(q, k, v, bounds, 128, 0.2, dropout)
    output.sum().backward()
    assert output.shape == q.grad.shape == (24, 4, 32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel needs CUDA")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_kernel_gives_what_padding_gives(dropout):
    """With dropout the mean of many draws, and its gradient, are those without."""
    torch.manual_seed(0)
    parts = torch.randn(3, 24, 4, 32, device="cuda", dtype=torch.bfloat16)
    bounds = torch.tensor([0, 3, 20, 24], dtype=torch.int32, device="cuda")

    def differentiate(compute, count, dtype, dropout):
        """Return the mean of so many draws and the gradients of its square; they are added up in float32."""
        learned = [part.float().requires_grad_() for part in parts]
        draws = []
        for _ in range(count):
            inputs = (part.to(dtype) for part in learned)
            draws.append(compute(*inputs, bounds, 128, 0.2, dropout).float())
        mean = torch.stack(draws).mean(0)
        mean.square().sum().backward()
        return [mean.detach(), *(part.grad for part in learned)]

    count = 1 if dropout == 0 else 4000
    expected = differentiate(attention.compute_by_padding, 1, torch.float32, 0.0)
    actual = differentiate(attention.compute_by_kernel, count, torch.bfloat16, dropout)
    for wanted, got in zip(expected, actual, strict=True):
        # the mean of the draws is off by some hundredths
        torch.testing.assert_close(got, wanted, atol=0.05 if dropout == 0 else 0.1, rtol=0.05)
