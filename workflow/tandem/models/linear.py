"""Linear layers by oneDNN on a CPU, for models that learn and for models that learn no more (frozen).

oneDNN reads weights in blocks of its own, which fit what the processor multiplies at once; PyTorch's plain layer hands
them over row by row. Results and gradients are the plain layers' within rounding, and nothing needs compiling.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tandem.models.device import by_onednn, resolve_precision

# Names of a linear layer and of the activation that follows it, in one module: BERT's relatives, DistilBERT.
ACTIVATED = (("dense", "intermediate_act_fn"), ("lin1", "activation"))


class FrozenLinear(nn.Module):
    """`nn.Linear` whose weights are cast and laid out once; GELU is computed while a product is still in the cache.

    Args:
        plain: the layer that it replaces.
        dtype: of the product's factors and of the result; sums are float32.
        rows: about how many rows it gets at once; weights are laid out for so many.
        gelu: whether GELU (by the error function) follows.
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
    """Make a model's linear layers ready for inference, in place; it can be neither trained nor saved any more.

    Args:
        model: on its device.
        mode: precision of the computation, `auto`, `bf16` or `fp32`; layers cast what they get.
        rows: about how many tokens a batch has.
    """
    dtype = torch.bfloat16 if resolve_precision(mode) == "bf16" else torch.float32
    for parent in list(model.modules()):
        fused = {linear: act for linear, act in ACTIVATED if _is_gelu(getattr(parent, act, None))}
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear:
                continue
            if by_onednn():
                freeze_child(parent, name, dtype, rows, name in fused)
                if name in fused:
                    setattr(parent, fused[name], nn.Identity())
            else:
                child.to(dtype)  # what autocast would do with every batch


def freeze_child(parent: nn.Module, name: str, dtype: torch.dtype, rows: int, gelu: bool) -> None:
    """Replace a module's linear layer by a `FrozenLinear`."""
    setattr(parent, name, FrozenLinear(getattr(parent, name), dtype, rows, gelu))


def _is_gelu(module: Any) -> bool:
    """Whether a module is GELU by the error function, as transformers or PyTorch have it."""
    if isinstance(module, nn.GELU):
        return module.approximate == "none"
    return getattr(module, "act", None) is nn.functional.gelu


class LearningLinear(nn.Linear):
    """`nn.Linear` that lays its weights out anew when they have changed, not with every micro-batch.

    Its parameters are the plain layer's own, by the same names. Under autocast, and in float64, it is the plain layer.

    Args:
        plain: the layer that it replaces.
        rows: about how many rows it gets at once; weights are laid out for so many.
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
    """x Wᵀ + b by oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product


def make_ready(encoder: nn.Module, rows: int) -> None:
    """Have an encoder's linear layers multiply by oneDNN, in place; it can be trained, saved and loaded as before.

    Args:
        encoder: on the CPU.
        rows: about how many tokens a micro-batch has.
    """
    for parent in list(encoder.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, LearningLinear(child, rows))
