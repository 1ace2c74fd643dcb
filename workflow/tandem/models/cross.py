"""Cross-encoders: query and passage are read together; a linear head on the first token gives the score."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tandem.models.device import device, precision
from tandem.models.hub import load_classifier
from tandem.models.template import Ids, Template

# Lengths are padded to a multiple of STEP, so that a pair meets the same few tensor shapes whatever its company, and
# batches have a multiple of ROWS pairs: in odd shapes, matrix products give other last bits at the edges.
STEP, ROWS = 16, 8


class CrossEncoder(nn.Module):
    """One output per pair of (query, passage); the sigmoid of it is the probability of relevance."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    @classmethod
    def load(cls, folder: Path) -> Self:
        """From a pre-trained encoder (new head from torch's generator) or from what `save` wrote."""
        return cls(load_classifier(folder))

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write a folder that transformers and sentence-transformers load."""
        classifier: Any = self.classifier
        classifier.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    def forward(
        self, queries: list[Ids], passages: list[Ids], template: Template, mode: str, multiple: int = 1
    ) -> Tensor:
        """Scores of pairs as one padded batch.

        Args:
            queries: token ids of each pair's query, without special tokens.
            passages: token ids of each pair's passage.
            template: the tokenizer's special tokens.
            mode: precision, `auto`, `bf16` or `fp32`.
            multiple: pad the length up to a multiple of this.
        Returns:
            Logits, shape (pairs,), float32.
        """
        inputs = {name: tensor.to(device()) for name, tensor in template.pairs(queries, passages, multiple).items()}
        with precision(mode):
            logits = self.classifier(**inputs).logits
        scores: Tensor = logits[:, 0].to(torch.promote_types(logits.dtype, torch.float32))
        return scores

    @torch.inference_mode()
    def score(self, queries: list[Ids], passages: list[Ids], template: Template, mode: str, budget: int) -> Ids:
        """Scores that do not depend on which pairs are asked together.

        Pairs are grouped by padded length (a multiple of `STEP`) and computed in batches of a fixed number of rows,
        the last one filled up: a pair then always meets the same tensor shape. `budget` is tokens per batch, of which
        there are `ROWS` pairs at least; another budget may change last bits.

        Returns:
            Logits, shape (pairs,), float32.
        """
        self.eval()
        lengths = np.array([len(q) + len(p) for q, p in zip(queries, passages, strict=True)]) + template.extra[1]
        padded = -(-lengths // STEP) * STEP
        scores = np.empty(len(lengths), np.float32)
        for length in np.unique(padded):
            members = np.flatnonzero(padded == length)
            rows = max(1, budget // int(length) // ROWS) * ROWS
            for start in range(0, len(members), rows):
                batch = members[start : start + rows]
                scores[batch] = self._fixed(queries, passages, batch, rows, int(length), template, mode)
        return scores

    def _fixed(
        self, queries: list[Ids], passages: list[Ids], batch: Ids, rows: int, length: int, template: Template, mode: str
    ) -> Ids:
        """Scores of at most `rows` pairs in a batch of exactly (rows, length)."""
        inputs = template.pairs([queries[i] for i in batch], [passages[i] for i in batch])
        full = {}
        for name, tensor in inputs.items():
            full[name] = torch.full((rows, length), template.pad if name == "input_ids" else 0, dtype=torch.int64)
            full[name][: tensor.shape[0], : tensor.shape[1]] = tensor
        full["attention_mask"][len(batch) :, 0] = 1  # a row of padding alone would give NaN
        with precision(mode):
            logits = self.classifier(**{name: tensor.to(device()) for name, tensor in full.items()}).logits
        scores: Ids = logits[: len(batch), 0].float().cpu().numpy()
        return scores
