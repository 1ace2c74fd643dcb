"""torch.compile of an encoder's layers: all layers of a family share one piece of compiled code per shape."""

import os
import shutil
from functools import cache

from torch import Tensor, nn

from tandem.cluster.progress import say

SHAPES = 64  # compiled variants of one layer: row lengths, with and without gradient, training or not, of each model


@cache
def can_compile() -> bool:
    """Whether a C compiler is there, which starting compiled code on a GPU takes; a line where none is."""
    names = [os.environ.get("CC", "cc"), "gcc", "clang"]
    found = any(map(shutil.which, names))
    if not found:
        say(
            f"layers are not compiled: none of the C compilers {', '.join(names)} is on the path; a training step or "
            "a batch takes longer, its results are the same within rounding"
        )
    return found


def compile_layers(encoder: nn.Module, packed: bool) -> None:
    """Compile every transformer layer in place; names of parameters, saving and copying stay as they are.

    Args:
        encoder: of transformers; an encoder without layers is left alone.
        packed: whether it meets packed rows, of few lengths, each of which gets its own code; the lengths of padded
            inputs are left open.
    """
    import torch._dynamo
    from transformers.modeling_layers import GradientCheckpointingLayer

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)
    for layer in encoder.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.compile(dynamic=not packed)


def leave_open(bounds: Tensor) -> None:
    """Leave the number of a row's texts, which the tensor's shape tells, open: one compiled code serves all."""
    import torch._dynamo

    torch._dynamo.maybe_mark_dynamic(bounds, 0)
