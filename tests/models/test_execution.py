"""Which attention and packing an encoder gets, and that compiled layers compute the same."""

import sys

import numpy as np
import pytest
import torch
from tiny_encoders import FAMILIES
from torch import nn

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models import encoding as attention
from tandem.models.acceleration import accelerate, compile_layers
from tandem.models.cross import CrossEncoder
from tandem.models.device import (
    can_compile,
    describe_kernels,
    device,
    is_onednn_used,
    make_deterministic,
)
from tandem.models.dual import DualEncoder
from tandem.models.hub import load_encoder
from tandem.models.saving import DualShape
from tandem.models.tokens import Template

EAGER = ("mpnet", "deberta-v2")  # families whose attention is no kernel of PyTorch's
LIMITS = ("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit")
TEMPLATE = Template(((2,), (3,)), ((2,), (3,), (3,)), (0, 0, 0, 1, 1), 0)


@pytest.fixture
def model(encoder):
    """A dual encoder of one tower, and a cross-encoder."""
    folder = encoder.folder / "hf"
    towers = {"shared": True, "pooling": "mean", "normalize": False, "temperature": 1.0}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = {
            "dual": DualEncoder.start(folder, **towers),
            "cross": CrossEncoder.start(folder, "cls"),
        }
    return nn.ModuleDict(parts)


def chosen(model):
    """Attention and packing of both parts."""
    encoders = {"dual": model["dual"].towers["query"], "cross": model["cross"].encoder}
    return {
        part: (encoder.config._attn_implementation, model[part].packed)
        for part, encoder in encoders.items()
    }


@pytest.mark.skipif(device().type != "cpu", reason="what auto is on a CPU")
def test_auto_on_a_cpu_is_padded(model):
    accelerate(model, Execution(), 2048, "auto", training=False)
    usual = attention.ON_CPU if is_onednn_used() else "sdpa"
    assert chosen(model) == {"dual": (usual, None), "cross": (usual, None)}
    accelerate(model, Execution(attention="auto", compile="auto"), 2048, "auto", training=True)
    assert chosen(model) == {"dual": ("eager", None), "cross": ("eager", None)}


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="what a machine says whose GPUs torch cannot use"
)
@pytest.mark.parametrize(
    ("cuda", "why"), [("13.0", "it needs a driver for CUDA 13.0"), (None, "built without CUDA")]
)
def test_gpus_that_torch_cannot_use_are_a_line(cuda, why, monkeypatch, capsys):
    monkeypatch.setattr("torch.version.cuda", cuda)
    for gpus, said in (("0,1", True), ("", False)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
        device.cache_clear()
        assert [device(), device()] == [torch.device("cpu")] * 2
        output = capsys.readouterr().err
        assert output.count("sees none of the GPUs 0, 1; ") == said
        assert (why in output) == said


def test_gpus_of_two_kinds_are_two_devices(monkeypatch):
    """Their last bits differ: a line tells of blocks that both have made, and pairs' scores are kept apart."""
    monkeypatch.setattr("tandem.models.device.device", lambda: torch.device("cuda", 1))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda place: f"NVIDIA of {place}")
    assert describe_kernels("bf16") == "cuda, NVIDIA of cuda:1, rows in bf16"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_on_cuda_alone_what_is_not_deterministic_is_an_error(kind, monkeypatch):
    """As long as torch only warns, attention's backward pass on CUDA stays as it is."""
    monkeypatch.setattr("tandem.models.device.device", lambda: torch.device(kind))
    before = torch.get_deterministic_debug_mode()
    try:
        make_deterministic()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled() == (kind == "cpu")
    finally:
        torch.set_deterministic_debug_mode(before)


def pretend_cuda(monkeypatch):
    for name in ("device.device", "acceleration.device"):
        monkeypatch.setattr(f"tandem.models.{name}", lambda: torch.device("cuda"))


def test_padded_texts_without_padding_have_a_mask_too_on_cuda(model, monkeypatch):
    """Without a mask CUDA takes another kernel: a text alone of its length had other last bits than in company."""
    pretend_cuda(monkeypatch)
    accelerate(model, Execution(attention="padded"), 2048, "fp32", training=True)
    assert chosen(model) == {"dual": ("sdpa", None), "cross": ("sdpa", None)}
    accelerate(model, Execution(attention="padded"), 2048, "fp32", training=False)
    assert chosen(model) == {"dual": (attention.MASKED, None), "cross": (attention.MASKED, None)}
    monkeypatch.undo()
    masks, plain = [], nn.functional.scaled_dot_product_attention

    def attend(*parts, **options):
        masks.append(options["attn_mask"])
        return plain(*parts, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", attend)
    vectors = model.eval()["dual"].encode("query", texts([6, 6]), TEMPLATE, "fp32")
    assert [tuple(mask.shape) for mask in masks] == [(2, 1, 8, 8)] * 2
    assert all(mask.all() for mask in masks)
    model["dual"].towers["query"].set_attn_implementation("sdpa")
    assert torch.allclose(
        model["dual"].encode("query", texts([6, 6]), TEMPLATE, "fp32"), vectors, atol=1e-6
    )
    assert masks[2:] == [None, None]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in EAGER])
def test_every_family_has_a_mask_too_on_cuda(family, family_folder, monkeypatch):
    encoder = load_encoder(family_folder(family)).eval()
    shape = DualShape(True, "mean", False, 1.0)
    pretend_cuda(monkeypatch)
    accelerate(
        DualEncoder(encoder, encoder, shape),
        Execution(attention="padded"),
        2048,
        "fp32",
        training=False,
    )
    monkeypatch.undo()
    ids = torch.randint(5, 20, (2, 8))
    masks, plain = [], nn.functional.scaled_dot_product_attention

    def attend(*parts, **options):
        masks.append(options["attn_mask"])
        return plain(*parts, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", attend)
    with torch.inference_mode():
        encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert len(masks) == 3
    assert all(mask is not None for mask in masks)


def test_an_attention_without_a_kernel_of_its_own_stays_on_cuda(family_folder, monkeypatch):
    encoder = load_encoder(family_folder("mpnet"))
    pretend_cuda(monkeypatch)
    model = DualEncoder(encoder, encoder, DualShape(True, "mean", False, 1.0))
    accelerate(model, Execution(), 2048, "fp32", training=False)
    assert encoder.config._attn_implementation == "eager"


@pytest.mark.parametrize(("tokens", "row"), [(2048, 2048), (2000, 1920), (64, 128)])
def test_packed_on_demand(model, tokens, row):
    accelerate(model, Execution(attention="packed"), tokens, "fp32", training=True)
    assert chosen(model) == {
        "dual": (attention.PACKED_ATTENTION, row),
        "cross": (attention.PACKED_ATTENTION, row),
    }


def test_an_encoder_that_cannot_be_packed_is_refused(model):
    model["cross"].encoder.config.model_type = "mpnet"
    with pytest.raises(
        UserError,
        match=r"execution.attention is packed, which mpnet does not take; allowed: bert, ",
    ):
        accelerate(model, Execution(attention="packed"), 2048, "fp32", training=True)
    bag = DualEncoder(nn.Embedding(4, 2), nn.Embedding(4, 2), DualShape(False, "mean", False, 1.0))
    with pytest.raises(UserError, match="an encoder without attention"):
        accelerate(bag, Execution(attention="packed"), 2048, "fp32", training=True)
    accelerate(bag, Execution(), 2048, "fp32", training=True)
    assert bag.packed is None


@pytest.fixture
def traced():
    """Compile by tracing alone, without generating code, which takes a minute; yields what was traced."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    before = torch.compiler.get_default_backend()
    torch._dynamo.reset()
    counters.clear()
    torch.compiler.set_default_backend("aot_eager")
    limits = {name: getattr(torch._dynamo.config, name) for name in LIMITS}
    with torch._dynamo.config.patch(limits):  # which `compile_layers` sets
        yield counters
    torch.compiler.set_default_backend(before)
    torch._dynamo.reset()


def texts(lengths):
    rng = np.random.default_rng(len(lengths))
    return [rng.integers(4, 90, length) for length in lengths]


def test_compiled_layers_compute_the_same_and_have_one_code_for_any_number_of_texts(model, traced):
    # layers that learn by oneDNN are never compiled
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        accelerate(model, Execution(attention="packed"), 128, "fp32", training=True)
    model.eval()
    dual = model["dual"]
    names, results = list(dual.state_dict()), []
    # with their special tokens 77, 96, 82 and 73: rows of 128
    batches = [texts([9] * 7), texts([6] * 12), texts([20, 1, 53]), texts([71])]
    for _ in ("eager", "compiled"):
        for batch in batches:
            dual.zero_grad()
            vectors = dual.encode("query", batch, TEMPLATE, "fp32")
            vectors.square().sum().backward()
            results.append(
                [
                    vectors.detach(),
                    *(p.grad.clone() for p in dual.parameters() if p.grad is not None),
                ]
            )
        compile_layers(dual, packed=True)
    for eager, compiled in zip(results[: len(batches)], results[len(batches) :], strict=True):
        for a, b in zip(eager, compiled, strict=True):
            assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)
    # two layers and four batches: one code, without breaks
    assert traced["stats"]["unique_graphs"] == 1
    assert not traced["graph_break"]
    assert list(dual.state_dict()) == names


def test_no_clock_decides_which_code_a_layer_gets(model, traced):
    """Shards compile by themselves, and make the blocks of one artifact."""
    import torch._inductor.config

    with torch._inductor.config.patch(deterministic=False):
        compile_layers(model["dual"], packed=True)
        assert torch._inductor.config.deterministic


def test_a_shape_too_many_is_never_run_uncompiled_in_silence(model, traced, monkeypatch):
    """Its dropout masks would be others than those of the pass that is computed again."""
    from torch._dynamo.exc import FailOnRecompileLimitHit

    monkeypatch.setattr("tandem.models.acceleration._COMPILED_SHAPES", 1)
    accelerate(model, Execution(attention="packed", compile="always"), 128, "fp32", training=True)
    model["dual"].encode("query", texts([9] * 7), TEMPLATE, "fp32")
    with pytest.raises(FailOnRecompileLimitHit):
        model["dual"].encode("query", texts([1]), TEMPLATE, "fp32")  # a row of 8 tokens


def test_a_compiled_layer_drops_the_same_values_when_computed_again(model, traced):
    """As cached gradients need it: first without a graph, then with one."""
    accelerate(model, Execution(attention="packed", compile="always"), 128, "fp32", training=True)
    model.train()
    vectors = []
    for learning in (False, True):
        torch.manual_seed(5)
        with torch.set_grad_enabled(learning):
            vectors.append(model["dual"].encode("query", texts([9] * 7), TEMPLATE, "fp32").detach())
    assert traced["stats"]["unique_graphs"] == 2
    assert torch.equal(*vectors)
    torch.manual_seed(6)
    assert not torch.equal(
        model["dual"].encode("query", texts([9] * 7), TEMPLATE, "fp32"), vectors[0]
    )


@pytest.fixture
def looking():
    """`can_compile` that looks anew, now and after the test."""
    can_compile.cache_clear()
    yield can_compile
    can_compile.cache_clear()


def test_a_machine_without_a_compiler_says_so_once(monkeypatch, tmp_path, capsys, looking):
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert [looking(), looking()] == [False, False]
    assert capsys.readouterr().err.count("none of the C compilers gcc, clang is on the path") == 1
    (tmp_path / "clang").write_text("#!/bin/sh")
    (tmp_path / "clang").chmod(0o755)
    looking.cache_clear()
    assert looking()
    monkeypatch.setenv("CC", "gcc-of-nobody")  # Triton then takes no other
    looking.cache_clear()
    assert not looking()
    assert "none of the C compilers gcc-of-nobody is on the path" in capsys.readouterr().err


def test_a_machine_without_pythons_headers_says_so(monkeypatch, tmp_path, capsys, looking):
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setenv("CC", sys.executable)
    assert not looking()
    assert (
        f"{tmp_path / 'Python.h'} is missing, which a system has in python3-dev"
        in capsys.readouterr().err
    )
    (tmp_path / "Python.h").touch()
    looking.cache_clear()
    assert looking()


@pytest.mark.skipif(not is_onednn_used(), reason="where encoders are frozen by oneDNN")
def test_without_training_encoders_are_frozen_and_not_compiled(model, traced):
    before = model.eval()["dual"].encode("query", texts([9] * 7), TEMPLATE, "fp32").detach()
    accelerate(model, Execution(compile="always"), 128, "fp32", training=False)
    plain = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    assert not plain
    with torch.inference_mode():
        vectors = model["dual"].encode("query", texts([9] * 7), TEMPLATE, "fp32")
    assert torch.allclose(vectors, before, atol=1e-5 * float(before.abs().max()))
    assert not traced["stats"]["unique_graphs"]
