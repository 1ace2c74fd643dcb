"""Dual encoders: query and passage each become one vector; their dot product is the score (RocketQAv2 Eq. 1)."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.errors import UserError
from tandem.models.device import device, place
from tandem.models.encoding import pooled
from tandem.models.hub import load_encoder, load_tokenizer, save_encoder
from tandem.models.ragged import Ids, Ragged, token_batches
from tandem.models.saving import DualShape, describe_encoder, describe_two_towers
from tandem.models.tokens import Template, Texts
from tandem.stages.training import UntrainedParams
from tandem.store.files import write_json
from tandem.store.job import Job, writing

SIDES = ("query", "passage")
# Lengths are padded to a multiple of this: in odd shapes the last bits of matrix products depend on the threads.
STEP = 8


class DualEncoder(nn.Module):
    """Two towers, or one for both sides.

    Args:
        passage: the passage tower; the same module where the towers are shared.
        temperature: scores are dot products divided by it.
    Attributes:
        packed: tokens that a packed row is filled up to; None pads texts. Set by `accelerate`.
    """

    packed: int | None = None

    def __init__(self, query: nn.Module, passage: nn.Module, pooling: str, normalize: bool, temperature: float) -> None:
        super().__init__()
        self.towers = nn.ModuleDict({"query": query, "passage": passage})
        self.pooling, self.normalize, self.temperature = pooling, normalize, temperature

    @classmethod
    def start(cls, folder: Path, shared: bool, pooling: str, normalize: bool, temperature: float) -> Self:
        """A dual encoder from a pre-trained encoder: both towers start from the same weights."""
        query = load_encoder(folder)
        return cls(query, query if shared else load_encoder(folder), pooling, normalize, temperature)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The dual encoder that `save` wrote."""
        shape = read_shape(folder)
        query = load_encoder(folder / ("shared" if shape.shared else "query"))
        passage = query if shape.shared else load_encoder(folder / "passage")
        return cls(query, passage, shape.pooling, shape.normalize, shape.temperature)

    @property
    def shared(self) -> bool:
        """Whether both sides use one tower."""
        return self.towers["query"] is self.towers["passage"]

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.towers["passage"].config.hidden_size)  # type: ignore[union-attr, arg-type]

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write each tower as a folder that transformers and sentence-transformers load, and two together as one."""
        for name in ("shared",) if self.shared else SIDES:
            save_encoder(self.towers["query" if name == "shared" else name], tokenizer, folder / name)
            describe_encoder(folder / name, self.dimension, self.pooling, self.normalize)
        if not self.shared:
            describe_two_towers(folder, *SIDES, normalize=self.normalize)
        shape = DualShape(self.shared, self.pooling, self.normalize, self.temperature, self.dimension)
        write_json(folder / "dual.json", asdict(shape))

    def encode(self, side: str, texts: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Vectors of texts.

        Args:
            texts: token ids of each text, without special tokens.
            multiple: pad the length up to a multiple of this; of no effect where texts are packed.
        Returns:
            Shape (texts, dimension), float32.
        """
        inputs = template.single_inputs(Ragged.of(texts))
        vectors = pooled(self.towers[side], inputs, self.pooling, mode, self.packed, multiple)
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors


def run_untrained(job: Job[UntrainedParams]) -> None:
    """Stage `untrained`: the input `encoder` as a dual encoder, as a training of 0 steps would leave it."""
    folder, params = job.inputs["encoder"].folder / "hf", job.params
    model = DualEncoder.start(folder, True, params.pooling, params.normalize, params.temperature)
    with writing(job) as draft:
        model.save(draft.folder / "dual", load_tokenizer(folder))
        write_json(draft.path("model.json"), {"objective": "dual", "parts": ["dual"], "steps": 0})


def read_shape(folder: Path) -> DualShape:
    """The `dual.json` of a saved dual encoder."""
    return DualShape(**json.loads((folder / "dual.json").read_text(encoding="utf-8")))


def dot_scores(queries: Tensor, passages: Tensor, temperature: float) -> Tensor:
    """s(q, p) = E_Q(q) · E_P(p) / temperature (RocketQAv2 Eq. 1; the temperature is 1 there).

    Args:
        queries: shape (queries, dim).
        passages: shape (passages, dim), every query against all; or (queries, list, dim), each against its list.
    Returns:
        Shape (queries, passages) or (queries, list).
    """
    if passages.dim() == 3:
        return torch.einsum("qd,qld->ql", queries, passages) / temperature
    return queries @ passages.T / temperature


@torch.inference_mode()
def encode_all(
    model: DualEncoder,
    side: str,
    texts: Ragged,
    template: Template,
    mode: str,
    budget: int,
    dtype: torch.dtype = torch.float32,
    on_batch: Callable[[Ids], object] = len,
) -> Tensor:
    """Vectors of texts in batches of at most `budget` tokens, which depend on the texts' lengths alone.

    A GPU keeps them until the last batch: looking at each one would leave it idle while the next is put together.

    Args:
        texts: token ids without special tokens.
        on_batch: called with the token counts, special tokens included, of each batch's texts once the device has them.
    Returns:
        Shape (texts, dimension), on the CPU.
    Raises:
        UserError: a number of a vector does not fit.
    """
    lengths = np.diff(texts.offsets) + template.extra[0]
    packed = model.packed is not None
    result = torch.empty((len(texts), model.dimension), dtype=dtype, device=device())
    largest = torch.zeros((), device=device())
    for batch in token_batches(lengths if packed else -(-lengths // STEP) * STEP, budget, packed):
        vectors = model.encode(side, texts.take(batch), template, mode, STEP)
        largest = torch.maximum(largest, vectors.abs().max())  # of NaN, NaN
        result[place(torch.from_numpy(batch))] = vectors.to(dtype)
        on_batch(lengths[batch])
    limit = torch.finfo(dtype).max
    if not float(largest) <= limit:
        raise UserError(
            f"embeddings: a vector holds {float(largest):g}, {str(dtype)[6:]} ends at {limit:g}; "
            "train with normalize: true, or look for a diverged model"
        )
    return result.cpu()
