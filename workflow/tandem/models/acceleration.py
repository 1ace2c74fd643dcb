"""Choose how models are run: padded or packed, compiled or not, frozen or learning; results differ only by rounding.

On a CPU linear layers multiply by oneDNN, which has its own layout of weights. Results and gradients are those of the
plain layers within rounding, and nothing needs compiling.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, library, nn

from tandem.config.settings import Execution
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.device import (
    can_compile,
    can_onednn_use_bf16,
    device,
    has_bf16,
    is_onednn_used,
    keep_memory,
    resolve_precision,
    rows_change_bits,
)
from tandem.models.dual import DualEncoder
from tandem.models.encoding import (
    LENGTH_MULTIPLE,
    MASKED,
    ON_CPU,
    PACKED_ATTENTION,
    PACKED_FAMILIES,
    register,
)
from tandem.models.pair_prompts import ReadingHead
from tandem.store.job import load

# Maximum number of compiled variants of one layer. Each model has its own, for the lengths of rows and of their longest
# texts (37 pairs for texts of 8,192 tokens), with and without gradient, in training and in inference.
_COMPILED_SHAPES = 512
# Names, within a module, of a linear layer and of the activation that follows it: in BERT's relatives, in DistilBERT.
_ACTIVATED_LAYERS = (("dense", "intermediate_act_fn"), ("lin1", "activation"))
# arguments of oneDNN's product for no activation
_NO_ACTIVATION: tuple[str, list[float], str] = ("none", [], "")


def accelerate(
    models: nn.Module, execution: Execution, tokens: int, mode: str, training: bool
) -> None:
    """Choose how the dual encoders and cross-encoders among `models` run, once they are on their device.

    Args:
        execution: its fields `attention` and `compile` are read. With `auto`, texts are packed in bf16 on CUDA, which
            has a kernel for packed rows, and encoders that read packed rows on CUDA are compiled.
        tokens: length of packed rows; it is rounded down to a multiple of `LENGTH_MULTIPLE`.
        training: whether there will be backward passes; if not, encoders are frozen: see `freeze`.
    Raises:
        UserError: `attention` is `packed`, and an encoder cannot be packed.
    """
    if not training:
        keep_memory()
    for model in models.modules():
        if isinstance(model, DualEncoder | CrossEncoder):
            encoders: list[Any] = [
                module for module in model.modules() if hasattr(module, "set_attn_implementation")
            ]
            packed = model.packs and is_packed(encoders, execution.attention, mode)
            model.packed = max(1, tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE if packed else None
            usual = (
                execution.compile == "auto" and packed and device().type == "cuda" and can_compile()
            )
            # Layers whose weights are laid out for inference by oneDNN are never compiled.
            compiled = (execution.compile == "always" or usual) and (
                training or not is_onednn_used()
            )
            if isinstance(model, CrossEncoder) and is_onednn_used() and not training:
                model.any_rows = not rows_change_bits(resolve_precision(mode))
                if isinstance(model.head, nn.Linear):
                    model.head = FrozenLinear(model.head, torch.float32, tokens, gelu=False)
                elif isinstance(model.head, ReadingHead):
                    model.head.freeze_layers(
                        model.encoder,
                        lambda layer: FrozenLinear(layer, torch.float32, tokens, gelu=False),
                    )
                else:
                    freeze(model.head, "fp32", tokens)
            if isinstance(model, DualEncoder) and is_onednn_used() and not training:
                model.freeze_heads(
                    lambda layer: FrozenLinear(layer, choose_dtype(mode), tokens, gelu=False)
                )
            for encoder in encoders:
                attention = _choose_attention(encoder, packed, training)
                if not training:
                    if attention == ON_CPU:
                        load("extras.frozen_layers:simplify_layers")(encoder, model, mode, tokens)
                    freeze(encoder, mode, tokens)
                    on_gpu = device().type == "cuda"
                    if packed and on_gpu and choose_dtype(mode) == torch.bfloat16:
                        convert_to_bf16(encoder)
                elif is_onednn_used() and not compiled:
                    use_learning_layers(encoder, tokens)
                if attention:
                    register()
                    encoder.set_attn_implementation(attention)
                if compiled:
                    compile_layers(encoder, packed)


def _choose_attention(encoder: Any, packed: bool, training: bool) -> str | None:
    """Return the attention to set on an encoder; None: it keeps its own."""
    if packed:
        return PACKED_ATTENTION
    if training and device().type == "cpu":
        # On a CPU the fused kernel's backward pass takes a third of a step. Without training, the fused kernel is used.
        return "eager"
    if is_onednn_used():
        return ON_CPU if encoder.config.model_type in PACKED_FAMILIES else None
    frozen_on_gpu = device().type == "cuda" and not training
    return MASKED if frozen_on_gpu and encoder.config._attn_implementation == "sdpa" else None


def is_packed(encoders: list[Any], setting: str, mode: str) -> bool:
    """Return whether texts are packed for these encoders; see `accelerate`."""
    families = {encoder.config.model_type for encoder in encoders}
    others = ", ".join(sorted(families - {*PACKED_FAMILIES}))
    fit = bool(families) and not others
    if setting == "packed" and not fit:
        refused = others or "an encoder without attention"
        raise UserError(
            f"execution.attention is packed, which {refused} does not take; allowed: {', '.join(PACKED_FAMILIES)}"
        )
    kernel = device().type == "cuda" and has_bf16() and resolve_precision(mode) == "bf16"
    return setting == "packed" or (setting == "auto" and fit and kernel)


def compile_layers(encoder: nn.Module, packed: bool) -> None:
    """Compile every transformer layer in place; names of parameters, saving and copying stay as they are.

    Packed rows have few lengths, and code is compiled for each; for padded inputs the length stays dynamic. With
    `deterministic` the compiler does not choose between alternatives by measuring them, as their sums may have another
    order: all jobs on machines of one kind compile the same code.

    With `combo_kernels` small independent operations, such as casts of weights, are started together: a GPU computes
    a training step faster than the processor can start its operations one by one.
    """
    import torch._dynamo
    import torch._inductor.config
    from transformers.modeling_layers import GradientCheckpointingLayer

    torch._dynamo.config.recompile_limit = _COMPILED_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = _COMPILED_SHAPES
    # Beyond the limit some shapes would run uncompiled, with other bits and dropout masks, depending on earlier shapes.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._inductor.config.deterministic = True
    torch._inductor.config.combo_kernels = True
    for layer in encoder.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.compile(dynamic=not packed)


class FrozenLinear(nn.Module):
    """`nn.Linear` for inference: weights are cast and laid out once; GELU is computed while products are in the cache.

    Where oneDNN does not multiply bfloat16, as without AVX-512, numbers are rounded to it and multiplied as float32.

    Args:
        dtype: type of the product's factors and of the result; sums are float32.
        rows: about how many rows the layer will read; weights are laid out for it.
        gelu: whether GELU follows the product.
    """

    def __init__(self, plain: nn.Linear, dtype: torch.dtype, rows: int, gelu: bool) -> None:
        super().__init__()
        self.in_features = plain.in_features
        self.out_features = plain.out_features
        self.dtype = dtype
        self.activation: tuple[str, list[float], str] = (
            ("gelu", [], "none") if gelu else _NO_ACTIVATION
        )
        is_rounded = dtype == torch.bfloat16 and not can_onednn_use_bf16()
        self.multiplied = torch.float32 if is_rounded else dtype
        weight = plain.weight.detach().to(dtype).to(self.multiplied).contiguous()
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        self.bias = (
            None if plain.bias is None else plain.bias.detach().to(dtype).to(self.multiplied)
        )

    def forward(self, inputs: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features).

        Args:
            added: tensor of the output's shape that is added to it; only for a layer without GELU.
        """
        rows = inputs.to(self.dtype).to(self.multiplied)
        is_single = rows.numel() == self.in_features
        if is_single:  # for a single row oneDNN has another kernel, which sums in another order
            rows = torch.cat([rows, rows])
        if added is None:
            product = _multiply(rows, self.weight, self.bias, *self.activation)
        else:
            added = added.to(self.multiplied).expand(*rows.shape[:-1], -1)
            product = torch.ops.mkldnn._linear_pointwise.binary(
                rows, added, self.weight, self.bias, "add"
            )
        product = product.to(self.dtype)
        return product[:1] if is_single else product


class GeluLinear(nn.Module):
    """`nn.Linear` and GELU in one operation, so that a GPU does not write and read the product in between.

    cuBLAS computes GELU by tanh, which is off by at most .0005. This changes similarities of MiniLM's vectors by a
    fifth of the rounding error of bf16.
    """

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        _define_gelu_product()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features)."""
        rows = inputs.flatten(0, -2)
        product: Tensor = torch.ops.tandem.multiply_and_gelu(rows, self.weight, self.bias)
        return product.view(*inputs.shape[:-1], -1)


@cache
def _define_gelu_product() -> None:
    """Register the operation with torch; otherwise its compiler would split it up again."""

    @library.custom_op("tandem::multiply_and_gelu", mutates_args=())
    def multiply(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        product: Tensor = torch._addmm_activation(bias, rows, weight.t(), use_gelu=True)
        return product

    @multiply.register_fake
    def _(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        shape = (len(rows), len(weight))
        return torch.empty(shape, dtype=rows.dtype, device=rows.device)


def convert_to_bf16(encoder: nn.Module) -> None:
    """Convert an encoder to bf16 throughout, for a GPU: layers then exchange half as many bytes.

    Sums, norms and softmax are float32 within an operation. The encoder can no longer be trained or saved.
    """
    encoder.to(torch.bfloat16)
    for parent in list(encoder.modules()):
        for linear, activation in _ACTIVATED_LAYERS:
            layer = getattr(parent, linear, None)
            is_activated = is_gelu(getattr(parent, activation, None))
            if is_activated and type(layer) is nn.Linear and layer.bias is not None:
                setattr(parent, linear, GeluLinear(layer))
                setattr(parent, activation, nn.Identity())


def freeze(model: nn.Module, mode: str, rows: int) -> None:
    """Prepare a model's linear layers for inference in a precision; it can no longer be trained or saved."""
    dtype = choose_dtype(mode)
    tied = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    for parent in list(model.modules()):
        # linear layers that are followed by GELU, each with its name
        fused = {
            linear: act for linear, act in _ACTIVATED_LAYERS if is_gelu(getattr(parent, act, None))
        }
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear:
                continue
            if is_onednn_used():
                setattr(parent, name, FrozenLinear(child, dtype, rows, name in fused))
                if name in fused:
                    setattr(parent, fused[name], nn.Identity())
            elif id(child.weight) not in tied:
                # Cast once, as autocast would cast for every batch. Weights shared with embeddings are not rounded.
                child.to(dtype)


def choose_dtype(mode: str) -> torch.dtype:
    """Return the type of frozen layers' weights in a precision."""
    return torch.bfloat16 if resolve_precision(mode) == "bf16" else torch.float32


def is_gelu(module: Any) -> bool:
    """Return whether a module is the exact GELU, by the error function, of transformers or PyTorch."""
    if isinstance(module, nn.GELU):
        return module.approximate == "none"
    return getattr(module, "act", None) is nn.functional.gelu


class LearningLinear(nn.Linear):
    """`nn.Linear` that lays out its weights for oneDNN only after they have changed, not in every micro-batch.

    Its parameters are those of the plain layer, with the same names. Under autocast, and in float64, it computes as the
    plain layer does.

    Args:
        rows: about how many rows it will read; weights are laid out for it.
    """

    def __init__(self, plain: nn.Linear, rows: int) -> None:
        super().__init__(
            plain.in_features, plain.out_features, plain.bias is not None, device="meta"
        )
        self.weight = plain.weight
        self.bias = plain.bias
        self.rows = rows
        self.layouts: dict[bool, tuple[tuple[int, int], Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, without layouts: the copy lays out its own weights."""
        return {**self.__dict__, "layouts": {}}

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's output, shape (…, in_features) → (…, out_features)."""
        if torch.is_autocast_enabled("cpu") or self.weight.dtype != torch.float32:
            return super().forward(input)
        product: Tensor = _Linear.apply(input, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
        return product

    def lay_out(self, transposed: bool) -> Tensor:
        """Return the current weights, or their transpose, in oneDNN's layout."""
        current = (self.weight._version, self.weight.data_ptr())
        if transposed not in self.layouts or self.layouts[transposed][0] != current:
            weight = self.weight.detach()
            weight = (weight.t() if transposed else weight).contiguous()
            self.layouts[transposed] = (
                current,
                torch.ops.mkldnn._reorder_linear_weight(weight, self.rows),
            )
        return self.layouts[transposed][1]


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b, dx = dy W, dW = dyᵀ x, db = Σ dy."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, layer: LearningLinear
    ) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.layer = layer
        return _multiply(inputs, layer.lay_out(transposed=False), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of inputs, weight and bias, as far as they are needed."""
        (inputs,) = ctx.saved_tensors
        flat = gradient.flatten(0, -2)
        needs_inputs, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            _multiply(gradient, ctx.layer.lay_out(transposed=True), None) if needs_inputs else None,
            _multiply(flat.t(), inputs.flatten(0, -2).t(), None) if needs_weight else None,
            flat.sum(0) if needs_bias else None,
            None,
        )


def _multiply(inputs: Tensor, weight: Tensor, bias: Tensor | None, *activation: Any) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        inputs, weight, bias, *(activation or _NO_ACTIVATION)
    )
    return product


def use_learning_layers(encoder: nn.Module, rows: int) -> None:
    """Replace an encoder's linear layers by `LearningLinear`; it can be trained, saved and loaded as before."""
    for parent in list(encoder.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, LearningLinear(child, rows))
