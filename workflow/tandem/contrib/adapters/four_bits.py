"""Weights that stay in four bits (QLoRA), by `bitsandbytes`, which is imported with this module.

A weight is one of sixteen numbers, the quantiles of a normal distribution, times the largest number of its block of 64
weights. These largest numbers are stored in eight bits (NF4 with double quantization, Dettmers et al. 2023, §3). A
layer computes with the W that these bits represent; adapters learn next to it in full precision.
"""

from copy import copy
from typing import Any

import torch
from bitsandbytes import matmul_4bit
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit, Params4bit
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.device import device

_KIND = "nf4"


class FourBitLinear(Linear4bit):  # type: ignore[misc]
    """A linear layer in four bits that computes in the precision in which `nn.Linear` would.

    The library's own layer keeps the precision of its first input for good, and rounds its bias to it. On processors
    with bf16, it also reorders its weights for a validation, into a layout that has no gradients.
    """

    def __init__(self, plain: nn.Linear) -> None:
        has_bias = plain.bias is not None
        super().__init__(
            plain.in_features, plain.out_features, has_bias, quant_type=_KIND, device="meta"
        )
        weight = Params4bit(plain.weight.detach(), requires_grad=False, quant_type=_KIND)
        # moving the weight to a device quantizes it
        self.weight = weight.to(device())
        self.bias = plain.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features)."""
        place = x.device.type
        autocast = torch.is_autocast_enabled(place)
        dtype = torch.get_autocast_dtype(place) if autocast else x.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        if self.in_features % self.weight.blocksize:
            # The library's product would read such a weight wrongly, see `read_weight`.
            return nn.functional.linear(x.to(dtype), self.read_weight().to(dtype), bias)
        product: Tensor = matmul_4bit(
            x.to(dtype), self.weight, bias=bias, quant_state=self.weight.quant_state
        )
        return product

    def read_weight(self) -> Tensor:
        """Return the weight with which the layer computes, shape (out_features, in_features).

        It is read as a single row: if rows begin within a block, the library uses the largest number of the wrong block
        on processors with AVX-512.
        """
        as_one_row = copy(self.weight.quant_state)
        as_one_row.shape = torch.Size((1, self.out_features * self.in_features))
        weight: Tensor = dequantize_4bit(self.weight.data, as_one_row)
        return weight.view(self.out_features, self.in_features)

    def restore(self) -> nn.Linear:
        """Return a plain layer that computes the same."""
        plain = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        plain.weight = nn.Parameter(self.read_weight(), requires_grad=False)
        plain.bias = self.bias
        return plain


def store_in_four_bits(encoder: Any) -> None:
    """Store the weights of an encoder's linear layers in four bits, in place, on the device that computes.

    The head that predicts tokens keeps its weights. So do the layers that transformers always computes in float32
    (T5's `wo`).
    """
    kept = {*(getattr(encoder, "_keep_in_fp32_modules", None) or ())}
    head = encoder.get_output_embeddings()
    chosen = [
        (name, layer)
        for name, layer in encoder.named_modules()
        if type(layer) is nn.Linear and layer is not head and not kept & {*name.split(".")}
    ]
    if not chosen:
        raise UserError(
            "lora.bits is 4, but the encoder has no linear layer to store so; leave it out"
        )
    for name, plain in chosen:
        encoder.set_submodule(name, FourBitLinear(plain))
