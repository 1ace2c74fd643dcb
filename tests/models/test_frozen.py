"""Frozen layers compute what plain ones do, in every family, whatever the threads."""

import pytest
import torch
from tiny_encoders import ENCODERS
from torch import nn
from transformers.masking_utils import bidirectional_mask_function

from tandem.config.settings import Execution
from tandem.models.acceleration import FrozenLinear, accelerate, freeze
from tandem.models.device import device, is_onednn_used, rows_change_bits
from tandem.models.dual import DualEncoder
from tandem.models.encoding import compute_attention_on_cpu, mask_filled
from tandem.models.hub import load_tokenizer
from tandem.models.tokens import Template

TOWERS = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}
TEXTS = [
    "The lynx eats hares and roe deer.",
    "an owl",
    "The owl turns its head far around, it is a night bird.",
]
onednn = pytest.mark.skipif(not is_onednn_used(), reason="PyTorch without oneDNN, or a GPU")
without_amx = pytest.mark.skipif(
    rows_change_bits("bf16"), reason="a CPU with AMX, whose bits depend on the shape"
)


@onednn
def test_a_layer_by_hand():
    plain = nn.Linear(2, 2)
    with torch.no_grad():
        plain.weight.copy_(torch.tensor([[1.0, 2.0], [-3.0, 0.5]]))
        plain.bias.copy_(torch.tensor([0.25, -1.0]))
    outputs = FrozenLinear(plain, torch.float32, rows=64, gelu=False)(
        torch.tensor([[[1.0, 1.0], [2.0, -4.0]]])
    )
    assert outputs.tolist() == [[[3.25, -3.5], [-5.75, -9.0]]]
    # x Φ(x) at 3.25 and -3.5: 3.25 · 0.99942297, -3.5 · 0.00023263
    gelu = FrozenLinear(plain, torch.float32, rows=64, gelu=True)(torch.tensor([[1.0, 1.0]]))
    assert gelu.flatten().tolist() == pytest.approx([3.2481247, -0.0008142], abs=1e-6)


@onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_any_number_of_rows(dtype, error, bias):
    torch.manual_seed(0)
    plain = nn.Linear(384, 96, bias=bias)
    frozen = FrozenLinear(plain, dtype, rows=4096, gelu=False)
    for rows in (1, 7, 64, 1000):
        inputs = torch.randn(rows, 3, 384)
        with torch.inference_mode():
            outputs, expected = frozen(inputs), plain(inputs)
        assert outputs.dtype == dtype
        assert outputs.shape == expected.shape
        assert float((outputs - expected).abs().max()) < error


@onednn
def test_without_bf16_in_onednn_rounded_numbers_are_multiplied_as_float32(monkeypatch):
    monkeypatch.setattr("tandem.models.acceleration.can_onednn_use_bf16", lambda: False)
    torch.manual_seed(0)
    plain, inputs = nn.Linear(384, 96), torch.randn(5, 384)
    outputs = FrozenLinear(plain, torch.bfloat16, rows=64, gelu=False)(inputs)
    rounded = [each.detach().bfloat16().float() for each in (inputs, plain.weight, plain.bias)]
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs, nn.functional.linear(*rounded).bfloat16())


@onednn
def test_a_product_adds_a_residual_by_hand():
    plain = nn.Linear(2, 2)
    with torch.no_grad():
        plain.weight.copy_(torch.tensor([[1.0, 2.0], [-3.0, 0.5]]))
        plain.bias.copy_(torch.tensor([0.25, -1.0]))
    layer = FrozenLinear(plain, torch.float32, rows=64, gelu=False)
    one = layer(torch.tensor([[[1.0, 1.0]]]), torch.tensor([[[10.0, 20.0]]]))
    assert one.tolist() == [[[13.25, 16.5]]]
    inputs, residual = torch.tensor([[1.0, 1.0], [2.0, -4.0]]), torch.tensor([[1.0, 2.0], [0.5, 9]])
    assert layer(inputs, residual).tolist() == [[4.25, -1.5], [-5.25, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [3, 8, 24, 32, 56])
def test_keys_that_fill_a_register_up_are_read_by_nobody(length, dtype):
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, length, 16).to(dtype) for _ in range(3))
    lengths = torch.tensor([length, length // 2, 1])
    is_token = torch.arange(length) < lengths[:, None]
    mask = mask_filled(
        batch_size=3,
        q_length=length,
        kv_length=length,
        attention_mask=is_token,
        mask_function=bidirectional_mask_function,
        device=torch.device("cpu"),
    )
    assert mask.shape[-1] >= length
    assert mask[:, 0, 0].sum(1).tolist() == lengths.tolist()

    module = nn.Module()
    module.is_causal = False
    mixed, _ = compute_attention_on_cpu(module, query, key, value, mask, scaling=0.25)
    scores = query.double() @ key.double().transpose(2, 3) / 4
    weights = scores.masked_fill(~is_token[:, None, None], -torch.inf).softmax(-1)
    expected = (weights @ value.double()).transpose(1, 2)
    error = 1e-6 if dtype == torch.float32 else 0.02
    assert float((mixed.double() - expected).abs().max()) < error


@pytest.mark.parametrize("family", ENCODERS)
def test_every_family_gives_the_same_vectors(family, family_folder):
    folder = family_folder(family)
    tokenizer = load_tokenizer(folder)
    ids, template = tokenizer(TEXTS, add_special_tokens=False)["input_ids"], Template.of(tokenizer)
    for mode, error in (("fp32", 1e-5), ("bf16", 0.05)):
        model = DualEncoder.start(folder, **TOWERS).to(device()).eval()
        with torch.inference_mode():
            expected = model.encode("passage", ids, template, "fp32", 8)
            accelerate(model, Execution(), 64, mode, training=False)
            vectors = model.encode("passage", ids, template, mode, 8)
        assert float((vectors - expected).abs().max() / expected.abs().max()) < error
        assert not any(type(module) is nn.Linear and is_onednn_used() for module in model.modules())


@onednn
def test_gelu_is_computed_with_the_product_where_it_is_the_exact_one(family_folder):
    def activations(**options):
        model = DualEncoder.start(family_folder("bert"), **TOWERS).towers["query"]
        for layer in model.encoder.layer:
            layer.intermediate.intermediate_act_fn = options.get(
                "act", layer.intermediate.intermediate_act_fn
            )
        freeze(model, "fp32", 64)
        return {
            (type(block.intermediate.intermediate_act_fn), block.intermediate.dense.activation[0])
            for block in model.encoder.layer
        }

    assert activations() == {(nn.Identity, "gelu")}
    assert activations(act=nn.GELU("tanh")) == {(nn.GELU, "none")}
    assert activations(act=nn.SiLU()) == {(nn.SiLU, "none")}


@onednn
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=without_amx)])
@pytest.mark.parametrize(("inner", "outer"), [(384, 1536), (1536, 384), (768, 768)])
def test_the_number_of_rows_changes_no_bit(dtype, inner, outer):
    torch.manual_seed(0)
    layer, inputs = (
        FrozenLinear(nn.Linear(inner, outer), dtype, 1024, gelu=inner < outer),
        torch.randn(40, 24, inner),
    )
    whole = layer(inputs)
    for texts in (1, 2, 7, 13):
        parts = torch.cat([layer(inputs[start : start + texts]) for start in range(0, 40, texts)])
        assert torch.equal(whole, parts)


@onednn
def test_a_single_row_is_multiplied_as_among_others():
    torch.manual_seed(0)
    layer, inputs = (
        FrozenLinear(nn.Linear(1536, 1536), torch.float32, 1024, gelu=False),
        torch.randn(16, 1536),
    )
    assert torch.equal(torch.cat([layer(row[None]) for row in inputs]), layer(inputs))
    assert layer(inputs[:1, None]).shape == (1, 1, 1536)


@onednn
@pytest.mark.parametrize("mode", ["fp32", pytest.param("bf16", marks=without_amx)])
def test_threads_change_no_bit(mode):
    before, results = torch.get_num_threads(), set()
    torch.manual_seed(0)
    plain, inputs = nn.Linear(1536, 384), torch.randn(3, 88, 1536)
    dtype = torch.bfloat16 if mode == "bf16" else torch.float32
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.add(
                FrozenLinear(plain, dtype, 4096, gelu=True)(inputs).float().numpy().tobytes()
            )
    finally:
        torch.set_num_threads(before)
    assert len(results) == 1


def test_without_onednn_weights_are_cast_alone(family_folder):
    tokenizer = load_tokenizer(family_folder("bert"))
    ids, template = tokenizer(TEXTS, add_special_tokens=False)["input_ids"], Template.of(tokenizer)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), torch.inference_mode():
        for mode in ("fp32", "bf16"):
            model = DualEncoder.start(family_folder("bert"), **TOWERS).to(device()).eval()
            expected = model.encode("passage", ids, template, mode, 8)
            freeze(model.towers["passage"], mode, 64)
            kinds = {type(module) for module in model.modules()}
            assert FrozenLinear not in kinds
            # autocast does the same with every batch
            assert torch.equal(model.encode("passage", ids, template, mode, 8), expected)
