"""`precision: auto` takes bf16 on a CPU only where it is the faster one, by what the processor says of itself."""

import pytest
import torch

from tandem.models.device import has_amx, resolve_precision


@pytest.fixture
def pretend(monkeypatch):
    """`pretend(**abilities)`: another processor, on which oneDNN multiplies bf16 in some way."""
    monkeypatch.setattr("tandem.models.device.device", lambda: torch.device("cpu"))
    monkeypatch.setattr("tandem.models.device.can_onednn_use_bf16", lambda: True)

    def pretend_abilities(**abilities):
        there = torch.cpu.get_capabilities() | abilities
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda: there)

    return pretend_abilities


@pytest.mark.parametrize(
    ("name", "abilities", "precision"),
    [
        ("AMD EPYC 9654", {"avx512_bf16": True, "avx512_fp16": False, "amx_tile": False}, "bf16"),
        ("AMD EPYC of 2030", {"avx512_bf16": True, "avx512_fp16": True, "amx_tile": False}, "bf16"),
        ("Intel Xeon 8380H", {"avx512_bf16": True, "avx512_fp16": False, "amx_tile": False}, "bf16"),
        ("Intel Xeon 8480", {"avx512_bf16": True, "avx512_fp16": True, "amx_tile": True}, "bf16"),
        ("Intel Xeon 8480", {"avx512_bf16": True, "avx512_fp16": True, "amx_tile": False}, "fp32"),
        ("Intel Xeon 8280", {"avx512_bf16": False, "avx512_fp16": False, "amx_tile": False}, "fp32"),
    ],
    ids=["Zen 4", "with fp16", "Cooper Lake", "AMX", "AMX hidden", "no bf16"],
)  # fmt: skip
def test_auto_takes_bf16_where_it_is_faster(pretend, monkeypatch, name, abilities, precision):
    monkeypatch.setattr("torch.cpu._init_amx", lambda: True)
    pretend(cpu_name=name, **abilities)
    assert resolve_precision("auto") == precision


def test_amx_that_the_kernel_refuses_is_none(pretend, monkeypatch):
    pretend(cpu_name="Intel Xeon 8480", avx512_bf16=True, avx512_fp16=True, amx_tile=True)
    monkeypatch.setattr("torch.cpu._init_amx", lambda: False)
    assert not has_amx()
    assert resolve_precision("auto") == "fp32"
