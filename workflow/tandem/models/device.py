"""Where a model runs, in which precision, and linear layers by oneDNN, which has its own layout of weights.

Results and gradients are the plain layers' within rounding, and nothing needs compiling.
"""

import ctypes
import os
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

MMAP_MAX, TRIM_THRESHOLD, RETAINED = -4, -1, 1 << 30  # glibc's mallopt(3): which settings, and bytes


@cache
def device() -> torch.device:
    """The CUDA device of this rank, the first where there are no ranks; the CPU where there is no CUDA."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def place(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the device that models run on; the copy to a GPU is not waited for."""
    where = device()
    return tensor if where.type == "cpu" else tensor.pin_memory().to(where, non_blocking=True)


def use_workers(count: int | None) -> None:
    """Compute with so many threads on the CPU, shared among a node's ranks; None leaves it to torch."""
    if count:
        torch.set_num_threads(max(1, count // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def be_deterministic() -> None:
    """Use torch's deterministic algorithms, with a warning where there is none."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling finds bugs, at a twelfth of a step's time; nothing here reads memory it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keep_memory() -> None:
    """Keep freed memory in this process for what it needs next; glibc returns large blocks at once.

    A training frees and takes the same activations every step: without it, a tenth of a dual encoder's step on a CPU
    goes into fresh pages.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, RETAINED)


def by_onednn() -> bool:
    """Whether weights are laid out for oneDNN here."""
    return device().type == "cpu" and torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


def kernels() -> str:
    """What multiplies here, `cpu, oneDNN …`, `cpu` or `cuda`: another one gives other last bits."""
    return "cpu, oneDNN and attention in fp32" if by_onednn() else device().type


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


def precision(setting: str) -> torch.autocast:
    """A context whose forward passes run in this precision (weights stay float32)."""
    return torch.autocast(device().type, dtype=torch.bfloat16, enabled=resolve_precision(setting) == "bf16")


# Names of a linear layer and of the activation that follows it, in one module: BERT's relatives, DistilBERT.
ACTIVATED = (("dense", "intermediate_act_fn"), ("lin1", "activation"))


class FrozenLinear(nn.Module):
    """`nn.Linear` whose weights are cast and laid out once; GELU is computed while a product is still in the cache.

    `dtype` is of the product's factors and of the result; sums are float32. Weights are laid out for about `rows` rows.
    """

    def __init__(self, plain: nn.Linear, dtype: torch.dtype, rows: int, gelu: bool) -> None:
        super().__init__()
        self.in_features, self.out_features, self.dtype = plain.in_features, plain.out_features, dtype
        self.activation: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        weight = plain.weight.detach().to(dtype).contiguous()
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self.bias = None if plain.bias is None else plain.bias.detach().to(dtype)

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape (…, in_features) → (…, out_features)."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs.to(self.dtype), self.weight, self.bias, *self.activation
        )
        return product


def freeze(model: nn.Module, mode: str, rows: int) -> None:
    """Make a model's linear layers ready for inference in a precision; it can be neither trained nor saved any more."""
    dtype = torch.bfloat16 if resolve_precision(mode) == "bf16" else torch.float32
    tied = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    for parent in list(model.modules()):
        fused = {linear: act for linear, act in ACTIVATED if _is_gelu(getattr(parent, act, None))}
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear:
                continue
            if by_onednn():
                setattr(parent, name, FrozenLinear(child, dtype, rows, name in fused))
                if name in fused:
                    setattr(parent, fused[name], nn.Identity())
            elif id(child.weight) not in tied:  # embeddings, which a head may share, are not rounded
                child.to(dtype)  # what autocast would do with every batch


def _is_gelu(module: Any) -> bool:
    """Whether a module is GELU by the error function, as transformers or PyTorch have it."""
    if isinstance(module, nn.GELU):
        return module.approximate == "none"
    return getattr(module, "act", None) is nn.functional.gelu


class LearningLinear(nn.Linear):
    """`nn.Linear` that lays its weights out anew when they have changed, not with every micro-batch.

    Its parameters are the plain layer's own, by the same names; weights are laid out for about `rows` rows. Under
    autocast, and in float64, it is the plain layer.
    """

    def __init__(self, plain: nn.Linear, rows: int) -> None:
        super().__init__(plain.in_features, plain.out_features, plain.bias is not None, device="meta")
        self.weight, self.bias, self.rows = plain.weight, plain.bias, rows
        self.layouts: dict[bool, tuple[tuple[int, int], Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """A copy lays its weights out itself."""
        return {**self.__dict__, "layouts": {}}

    def forward(self, input: Tensor) -> Tensor:
        """Shape (…, in_features) → (…, out_features)."""
        if torch.is_autocast_enabled("cpu") or self.weight.dtype != torch.float32:
            return super().forward(input)
        product: Tensor = _Linear.apply(input, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return product

    def laid_out(self, transposed: bool) -> Tensor:
        """The current weights in oneDNN's order, or their transpose."""
        current = (self.weight._version, self.weight.data_ptr())
        if transposed not in self.layouts or self.layouts[transposed][0] != current:
            weight = self.weight.detach()
            weight = (weight.t() if transposed else weight).contiguous()
            self.layouts[transposed] = (current, torch.ops.mkldnn._reorder_linear_weight(weight, self.rows))
        return self.layouts[transposed][1]


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b, dx = dy W, dW = dyᵀ x, db = Σ dy."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, layer: LearningLinear) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.layer = layer
        return _product(inputs, layer.laid_out(transposed=False), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inputs, weight and bias, as far as they are needed."""
        (inputs,) = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        needs_inputs, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            _product(gradient, ctx.layer.laid_out(transposed=True), None) if needs_inputs else None,
            _product(flat.t(), inputs.flatten(0, -2).t(), None) if needs_weight else None,
            flat.sum(0) if needs_bias else None,
            None,
        )


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def make_ready(encoder: nn.Module, rows: int) -> None:
    """Have an encoder's linear layers multiply by oneDNN, in place; it can be trained, saved and loaded as before."""
    for parent in list(encoder.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, LearningLinear(child, rows))
