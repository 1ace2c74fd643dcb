"""Where a model runs and in which precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def device() -> torch.device:
    """The first CUDA device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def use_workers(count: int | None) -> None:
    """Compute with so many threads on the CPU; None leaves it to torch."""
    if count:
        torch.set_num_threads(count)


def has_bf16(where: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively; emulation would be slower than float32."""
    if where.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and torch.cpu._is_avx512_bf16_supported()


def resolve_precision(setting: str) -> str:
    """`auto` → `bf16` where the device has it, else `fp32`; anything else stays."""
    if setting == "auto":
        return "bf16" if has_bf16(device()) else "fp32"
    return setting


@contextmanager
def precision(setting: str) -> Iterator[None]:
    """Forward passes inside run in this precision (weights stay float32)."""
    with torch.autocast(device().type, dtype=torch.bfloat16, enabled=resolve_precision(setting) == "bf16"):
        yield
