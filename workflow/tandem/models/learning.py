"""Linear layers of models that learn in float32 on a CPU: oneDNN multiplies, forward and backward.

It uses the whole width of the processor; the library that PyTorch's plain layer asks takes some processors for smaller
ones. What comes out, and every gradient, is the plain layer's within rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn

Context = Any  # torch's, which has no type of its own


class LearningLinear(nn.Linear):
    """`nn.Linear` that lays its weights out for oneDNN anew when they have changed, not with every micro-batch.

    Its parameters are the plain layer's own, by the same names. Under autocast, and in float64, it is the plain layer.

    Args:
        plain: the layer it takes the place of.
        rows: about how many rows it will be given at once; weights are laid out for so many.
    """

    def __init__(self, plain: nn.Linear, rows: int) -> None:
        super().__init__(plain.in_features, plain.out_features, plain.bias is not None, device="meta")
        self.weight, self.bias, self.rows = plain.weight, plain.bias, rows
        self.kept: dict[bool, tuple[tuple[int, int], Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of: it lays its weights out itself."""
        return {**self.__dict__, "kept": {}}

    def forward(self, input: Tensor) -> Tensor:
        """Shape (…, in_features) → (…, out_features)."""
        if torch.is_autocast_enabled("cpu") or self.weight.dtype != torch.float32:
            return super().forward(input)
        made: Tensor = _Linear.apply(input, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return made

    def laid_out(self, transposed: bool) -> Tensor:
        """The weights as they are now in oneDNN's order, or their transpose."""
        now = (self.weight._version, self.weight.data_ptr())
        if transposed not in self.kept or self.kept[transposed][0] != now:
            weight = self.weight.detach()
            weight = (weight.t() if transposed else weight).contiguous()
            self.kept[transposed] = (now, torch.ops.mkldnn._reorder_linear_weight(weight, self.rows))
        return self.kept[transposed][1]


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b, dx = dy W, dW = dyᵀ x, db = Σ dy."""

    @staticmethod
    def forward(ctx: Context, inputs: Tensor, weight: Tensor, bias: Tensor | None, layer: LearningLinear) -> Tensor:
        """y."""
        ctx.save_for_backward(inputs)
        ctx.layer = layer
        return _product(inputs, layer.laid_out(transposed=False), bias)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """dx, dW, db, as far as they are asked for."""
        (inputs,) = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        of_inputs, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            _product(gradient, ctx.layer.laid_out(transposed=True), None) if of_inputs else None,
            _product(flat.t(), inputs.flatten(0, -2).t(), None) if of_weight else None,
            flat.sum(0) if of_bias else None,
            None,
        )


def _product(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by oneDNN."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return made


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
