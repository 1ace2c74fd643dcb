"""How models are run: padded or packed, compiled or not, frozen or learning; results differ by rounding alone."""

import os
import shutil
from functools import cache
from typing import Any

import torch
from torch import nn

from tandem.cluster.progress import say
from tandem.config.execution import Execution
from tandem.errors import UserError
from tandem.models.cross import CrossEncoder
from tandem.models.device import (
    FrozenLinear,
    by_onednn,
    device,
    freeze,
    has_bf16,
    keep_memory,
    make_ready,
    resolve_precision,
)
from tandem.models.dual import DualEncoder
from tandem.models.encoding import BLOCK, FAMILIES, FLOAT32, PACKED, register

SHAPES = 64  # compiled variants of one layer: row lengths, with and without gradient, training or not, of each model


def accelerate(models: nn.Module, execution: Execution, tokens: int, mode: str, training: bool) -> None:
    """Choose how the dual encoders and cross-encoders among `models` run, once they are on their device.

    Args:
        execution: `attention` and `compile`; `auto` packs in bf16 on CUDA, where the kernel is, and compiles what is
            packed there.
        tokens: what packed rows are filled up to, rounded down to a multiple of `BLOCK`.
        training: whether there will be backward passes; without, encoders are frozen: see `freeze`.
    Raises:
        UserError: `attention` is `packed`, and an encoder cannot be packed.
    """
    if not training:
        keep_memory()
    for model in models.modules():
        if isinstance(model, DualEncoder | CrossEncoder):
            encoders: list[Any] = [module for module in model.modules() if hasattr(module, "set_attn_implementation")]
            packs = not isinstance(model, DualEncoder) or model.packs
            packed = packs and is_packed(encoders, execution.attention, mode)
            model.packed = max(1, tokens // BLOCK) * BLOCK if packed else None
            if isinstance(model, CrossEncoder) and by_onednn() and not training:
                model.any_rows = True
                if isinstance(model.head, nn.Linear):
                    model.head = FrozenLinear(model.head, torch.float32, tokens, gelu=False)
                else:
                    freeze(model.head, "fp32", tokens)
            for encoder in encoders:
                compiled = is_compiled(packed, execution.compile, training)
                if not training:
                    freeze(encoder, mode, tokens)
                elif by_onednn() and not compiled:
                    make_ready(encoder, tokens)
                if attention := _attention(encoder, packed, training):
                    register()
                    encoder.set_attn_implementation(attention)
                if compiled:
                    compile_layers(encoder, packed)


def is_packed(encoders: list[Any], setting: str, mode: str) -> bool:
    """Whether texts are packed for these encoders; see `accelerate`."""
    families = {encoder.config.model_type for encoder in encoders}
    fit = bool(families) and families <= {*FAMILIES}
    if setting == "packed" and not fit:
        refused = ", ".join(sorted(families - {*FAMILIES})) or "an encoder without attention"
        raise UserError(f"execution.attention is packed, which {refused} does not take; allowed: {', '.join(FAMILIES)}")
    kernel = device().type == "cuda" and has_bf16(device()) and resolve_precision(mode) == "bf16"
    return setting == "packed" or (setting == "auto" and fit and kernel)


def is_compiled(packed: bool, setting: str, training: bool) -> bool:
    """Whether an encoder's layers are compiled; those whose weights oneDNN has laid out for inference never are."""
    compiles = setting == "always" or (setting == "auto" and packed and device().type == "cuda" and can_compile())
    return compiles and (training or not by_onednn())


def _attention(encoder: Any, packed: bool, training: bool) -> str | None:
    """The name of one encoder's attention; None leaves its own."""
    if packed:
        return PACKED
    if training and device().type == "cpu":
        # The fused kernel's backward pass costs a third of a step on a CPU; its forward pass is kept for encoding.
        return "eager"
    return FLOAT32 if by_onednn() and encoder.config.model_type in FAMILIES else None


@cache
def can_compile() -> bool:
    """Whether a C compiler exists, which compiled code needs on a GPU; without one, a line says so."""
    names = [os.environ.get("CC", "cc"), "gcc", "clang"]
    available = any(map(shutil.which, names))
    if not available:
        say(
            f"layers are not compiled: none of the C compilers {', '.join(names)} is on the path; a training step or "
            "a batch takes longer, its results are the same within rounding"
        )
    return available


def compile_layers(encoder: nn.Module, packed: bool) -> None:
    """Compile every transformer layer in place; names of parameters, saving and copying stay as they are.

    Packed rows are of few lengths, each of which gets its own code; the lengths of padded inputs are left open.
    """
    import torch._dynamo
    from transformers.modeling_layers import GradientCheckpointingLayer

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)
    for layer in encoder.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.compile(dynamic=not packed)
