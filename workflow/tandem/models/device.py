"""Choose where a model runs, in which precision, and with how much memory and how many threads."""

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
from tandem.store.job import load

# Settings of glibc's mallopt(3), and a number of bytes.
MMAP_MAX = -4
TRIM_THRESHOLD = -1
RETAINED = 1 << 30


@cache
def device() -> torch.device:
    """Return the CUDA device of this rank (without ranks the first one), or the CPU if there is no CUDA.

    A line warns if the machine has GPUs that torch cannot use.
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
    """Return a tensor on the device that models run on, without waiting for a copy to a GPU."""
    where = device()
    return tensor if where.type == "cpu" else tensor.pin_memory().to(where, non_blocking=True)


def place_array(array: np.ndarray[Any, Any]) -> Tensor:
    """Return an array as a tensor on the device that models run on."""
    return move_to_device(torch.from_numpy(array))


def fetch_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU, copied from a GPU through page-locked memory, which is many times as fast."""
    if tensor.device.type == "cpu":
        return tensor
    locked = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return locked.copy_(tensor)


def place_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a dictionary of tensors, each moved to the device."""
    return {name: move_to_device(tensor) for name, tensor in tensors.items()}


def use_workers(count: int | None) -> None:
    """Set the number of threads on the CPU: `count`, shared among a node's ranks, but no more than there are cores.

    None starts from torch's own number, which respects this process' cores but not its quota. With more threads than
    cores everything takes many times as long.
    """
    usable = count_usable_cores()
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if count and count > usable:
        say(f"computes on {usable} threads, not {count}: this process may use no more cores")
    threads = count // ranks if count else torch.get_num_threads()
    torch.set_num_threads(max(1, min(threads, usable // ranks)))


def make_deterministic() -> None:
    """Use torch's deterministic algorithms; an operation without one is an error on CUDA, and a warning on the CPU.

    On CUDA a warning would not suffice: attention's backward pass would then add in any order.
    """
    torch.use_deterministic_algorithms(True, warn_only=device().type == "cpu")
    # Filling new memory helps to find bugs but takes a twelfth of a step; nothing here reads memory before writing it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keep_memory() -> None:
    """Keep freed memory in this process for later use; by default glibc returns large blocks to the system at once.

    Every step of a training frees and allocates the same activations: new pages would take a tenth of a dual encoder's
    step on a CPU.
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


def has_amx() -> bool:
    """Return whether the processor multiplies bf16 in tiles, and its kernel lets a process do so."""
    return bool(torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx())


def rows_change_bits(mode: str) -> bool:
    """Return whether the last bits of oneDNN's products depend on the number of rows and of threads.

    They do in bf16 on a CPU with AMX, which multiplies in tiles (7 times as fast as float32): rows and threads
    determine how sums are split.
    """
    return mode == "bf16" and has_amx()


def describe_kernels(mode: str) -> str:
    """Return a description of what multiplies in this precision: `cpu, oneDNN …`, `cpu` or `cuda, <GPU>, …`.

    Where descriptions differ, the last bits of results may differ, too.
    """
    if device().type == "cuda":
        rows = "rows in bf16" if mode == "bf16" else "rows in fp32"
        return f"cuda, {torch.cuda.get_device_name(device())}, {rows}"
    if not is_onednn_used():
        return "cpu"
    if mode != "bf16":
        return "cpu, oneDNN and attention in fp32"
    if has_amx():
        return "cpu, oneDNN in AMX's tiles, states and attention in bf16"
    how = "" if can_onednn_use_bf16() else " in float32, of numbers rounded to bf16,"
    return f"cpu, oneDNN{how} with states in bf16 and attention in fp32"


def can_onednn_use_bf16() -> bool:
    """Return whether oneDNN multiplies bfloat16 here, natively or not; without AVX-512 it refuses."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_bf16() -> bool:
    """Return whether the device multiplies bfloat16 natively, and faster than float32."""
    if device().type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return can_onednn_use_bf16() and bool(load("extras.cpu_bf16:is_faster")())


@cache
def can_compile() -> bool:
    """Return whether a C compiler and Python's headers exist, which are needed to compile code for a GPU.

    A line reports if something is missing.
    """
    # Triton looks for these compilers
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    missing = ""
    if not any(map(shutil.which, names)):
        missing = f"none of the C compilers {', '.join(names)} is on the path"
    elif not header.is_file():
        missing = f"{header} is missing, which a system has in python3-dev"
    if missing:
        say(
            f"nothing is compiled for the GPU: {missing}; steps, batches and searches take longer, their results are "
            "the same within rounding"
        )
    return not missing


def resolve_precision(setting: str) -> str:
    """Return a precision; `auto` is `bf16` if the device multiplies it faster than `fp32`."""
    if setting != "auto":
        return setting
    return "bf16" if has_bf16() else "fp32"


def precision(setting: str, encoder: nn.Module | None = None) -> torch.autocast:
    """Return a context in which forward passes run in this precision, while weights stay float32.

    An `encoder` whose weights are bf16 (`acceleration.convert_to_bf16`) needs no casts and gets none.
    """
    weights = next(encoder.parameters(), None) if encoder is not None else None
    is_whole = weights is not None and weights.dtype == torch.bfloat16
    is_mixed = resolve_precision(setting) == "bf16" and not is_whole
    return torch.autocast(device().type, dtype=torch.bfloat16, enabled=is_mixed)
