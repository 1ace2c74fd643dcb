"""Vectors of many texts: those of like length together, and no batch waited for before the next one is begun."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tandem.errors import UserError
from tandem.models.batching import token_batches
from tandem.models.device import device, place
from tandem.models.dual import DualEncoder
from tandem.models.ragged import Ids, Ragged
from tandem.models.template import Template

# Lengths are padded to a multiple of this: in odd shapes the last bits of matrix products depend on the threads.
STEP = 8


@torch.inference_mode()
def encode_all(
    model: DualEncoder,
    side: str,
    texts: Ragged,
    template: Template,
    mode: str,
    budget: int,
    dtype: torch.dtype = torch.float32,
    told: Callable[[Ids], object] = len,
) -> Tensor:
    """Vectors of texts in batches of at most `budget` tokens, which depend on the texts' lengths alone.

    A GPU keeps them until the last batch: who looks at each one leaves it idle while the next is put together.

    Args:
        model: in evaluation mode, on its device.
        side: `query` or `passage`.
        texts: token ids without special tokens.
        template: the tokenizer's special tokens.
        mode: precision of the computing, `auto`, `bf16` or `fp32`.
        budget: tokens of a batch.
        dtype: of the result.
        told: called with the token counts, special tokens included, of each batch's texts once they are given to the
            device.
    Returns:
        Shape (texts, dimension), on the CPU.
    Raises:
        UserError: a number of a vector does not fit.
    """
    lengths = np.diff(texts.offsets) + template.extra[0]
    packed = model.packed is not None
    made = torch.empty((len(texts), model.dimension), dtype=dtype, device=device())
    largest = torch.zeros((), device=device())
    for batch in token_batches(lengths if packed else -(-lengths // STEP) * STEP, budget, packed):
        vectors = model.encode(side, texts.take(batch), template, mode, STEP)
        largest = torch.maximum(largest, vectors.abs().max())  # of NaN, NaN
        made[place(torch.from_numpy(batch))] = vectors.to(dtype)
        told(lengths[batch])
    limit = torch.finfo(dtype).max
    if not float(largest) <= limit:
        raise UserError(
            f"embeddings: a vector holds {float(largest):g}, {str(dtype)[6:]} ends at {limit:g}; "
            "train with normalize: true, or look for a diverged model"
        )
    return made.cpu()
