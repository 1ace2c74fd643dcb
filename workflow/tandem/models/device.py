"""Where a model runs, in which precision, and with how much memory and how many threads."""

import ctypes
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tandem.cluster.progress import say
from tandem.cluster.scheduler import list_offered
from tandem.cluster.threads import count_usable_cores

# glibc's mallopt(3): which settings, and bytes
MMAP_MAX = -4
TRIM_THRESHOLD = -1
RETAINED = 1 << 30


@cache
def device() -> torch.device:
    """Return the CUDA device of this rank, the first where there are no ranks; the CPU where there is no CUDA.

    A line says so where the machine has GPUs that torch cannot use.
    """
    if not torch.cuda.is_available():
        gpus = list_offered(os.environ)
        if gpus:
            cuda = torch.version.cuda
            why = f"it needs a driver for CUDA {cuda}" if cuda else "it was built without CUDA"
            say(
                f"computes on the CPU: torch {torch.__version__} sees none of the GPUs {', '.join(gpus)}; {why}"
            )
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def move_to_device(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the device that models run on; the copy to a GPU is not waited for."""
    where = device()
    return tensor if where.type == "cpu" else tensor.pin_memory().to(where, non_blocking=True)


def place_array(array: np.ndarray[Any, Any]) -> Tensor:
    """Return an array as a tensor on the device that models run on."""
    return move_to_device(torch.from_numpy(array))


def fetch_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU; from a GPU through page-locked memory, many times as fast."""
    if tensor.device.type == "cpu":
        return tensor
    locked = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return locked.copy_(tensor)


def place_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a dictionary of tensors, each moved to the device."""
    return {name: move_to_device(tensor) for name, tensor in tensors.items()}


def use_workers(count: int | None) -> None:
    """Compute with so many threads on the CPU, shared among a node's ranks, but not with more than there are cores.

    None takes as many as torch does by itself, which knows this process' cores but not its quota. Threads that wait for
    one another on too few cores take many times as long.
    """
    usable = count_usable_cores()
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if count and count > usable:
        say(f"computes on {usable} threads, not {count}: this process may use no more cores")
    threads = count // ranks if count else torch.get_num_threads()
    torch.set_num_threads(max(1, min(threads, usable // ranks)))


def make_deterministic() -> None:
    """Use torch's deterministic algorithms; where there is none, an error on CUDA and a warning on the CPU.

    On CUDA attention's backward pass adds in any order as long as torch only warns.
    """
    torch.use_deterministic_algorithms(True, warn_only=device().type == "cpu")
    # Filling finds bugs, at a twelfth of a step's time; nothing here reads memory it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keep_memory() -> None:
    """Keep freed memory in this process for what it needs next; glibc returns large blocks at once.

    A training frees and takes the same activations every step: without it, a tenth of a dual encoder's step on a CPU
    goes into fresh pages.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # musl has none
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, RETAINED)


def is_onednn_used() -> bool:
    """Return whether weights are laid out for oneDNN here."""
    return (
        device().type == "cpu"
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
    )


def rows_change_bits(mode: str) -> bool:
    """Return whether the last bits of oneDNN's products depend on the number of rows and of threads.

    In bf16 a CPU with AMX multiplies in tiles, and sums are cut as rows and threads have it: 7 times float32's speed.
    """
    return mode == "bf16" and bool(torch.cpu._is_amx_tile_supported())


def describe_kernels(mode: str) -> str:
    """Return what multiplies in this precision, `cpu, oneDNN …`, `cpu` or `cuda, <GPU>, …`.

    Others give other last bits.
    """
    if device().type == "cuda":
        rows = "rows in bf16" if mode == "bf16" else "rows in fp32"
        return f"cuda, {torch.cuda.get_device_name(device())}, {rows}"
    if not is_onednn_used():
        return "cpu"
    how = " in AMX's tiles" if rows_change_bits(mode) else ""
    if mode == "bf16" and not can_onednn_use_bf16():
        how = " in float32, of numbers rounded to bf16,"
    return f"cpu, oneDNN{how} and attention in fp32"


def can_onednn_use_bf16() -> bool:
    """Return whether oneDNN multiplies bfloat16 here, natively or not; without AVX-512 it refuses."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_bf16() -> bool:
    """Return whether the device multiplies bfloat16 natively; emulation would be slower than float32."""
    if device().type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return can_onednn_use_bf16() and torch.cpu._is_avx512_bf16_supported()


@cache
def can_compile() -> bool:
    """Return whether a C compiler and Python's headers exist, which code compiled for a GPU needs.

    Without, a line says so.
    """
    # as Triton looks for one
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    missing = (
        ""
        if any(map(shutil.which, names))
        else f"none of the C compilers {', '.join(names)} is on the path"
    )
    if not missing and not header.is_file():
        missing = f"{header} is missing, which a system has in python3-dev"
    if missing:
        say(
            f"nothing is compiled for the GPU: {missing}; steps, batches and searches take longer, their results are "
            "the same within rounding"
        )
    return not missing


def resolve_precision(setting: str) -> str:
    """Return a precision; of `auto` `bf16` where the device has it, else `fp32`."""
    if setting != "auto":
        return setting
    return "bf16" if has_bf16() else "fp32"


def precision(setting: str, encoder: nn.Module | None = None) -> torch.autocast:
    """Return a context whose forward passes run in this precision (weights stay float32).

    An `encoder` whose own weights are bf16, as `acceleration.shrink` leaves them, computes in bf16 throughout.
    """
    weights = next(encoder.parameters(), None) if encoder is not None else None
    is_whole = weights is not None and weights.dtype == torch.bfloat16
    is_mixed = resolve_precision(setting) == "bf16" and not is_whole
    return torch.autocast(device().type, dtype=torch.bfloat16, enabled=is_mixed)
