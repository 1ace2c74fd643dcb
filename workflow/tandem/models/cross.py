"""Cross-encoders: query and passage are read together; a linear head on the pooled vector gives the score."""

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.artifact import write_json
from tandem.models.device import device, precision
from tandem.models.dual import pool
from tandem.models.hub import load_encoder
from tandem.models.sentence_transformers import describe_cross_encoder
from tandem.models.template import Ids, Template

# Lengths are padded to a multiple of STEP, so that a pair meets the same few tensor shapes whatever its company, and
# batches have a multiple of ROWS pairs: in odd shapes, matrix products give other last bits at the edges.
STEP, ROWS = 16, 8
HEAD = "2_Dense/model.safetensors"


class CrossEncoder(nn.Module):
    """An encoder, pooling and a linear head: one logit per pair; its sigmoid is the probability of relevance.

    With `cls` pooling this is RocketQAv2's re-ranker: a linear layer on the raw vector of [CLS] (§3.2).
    """

    def __init__(self, encoder: nn.Module, pooling: str) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder, self.pooling = encoder, pooling
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        self.head = nn.Linear(int(config.hidden_size), 1)

    @classmethod
    def start(cls, folder: Path, pooling: str) -> Self:
        """A cross-encoder from a pre-trained encoder; its new head is drawn from torch's generator."""
        made = cls(load_encoder(folder), pooling)
        nn.init.normal_(made.head.weight, std=0.02)
        nn.init.zeros_(made.head.bias)
        return made

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The cross-encoder that `save` wrote."""
        made = cls(load_encoder(folder), json.loads((folder / "cross.json").read_text())["pooling"])
        head = load_file(folder / HEAD)
        made.head.load_state_dict({name: head[f"linear.{name}"] for name in ("weight", "bias")})
        return made

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write a folder that sentence-transformers loads as a CrossEncoder, and transformers as the encoder."""
        encoder: Any = self.encoder
        encoder.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / HEAD).parent.mkdir()
        head = {f"linear.{name}": p.detach().cpu().contiguous() for name, p in self.head.named_parameters()}
        save_file(head, folder / HEAD)
        describe_cross_encoder(folder, int(encoder.config.hidden_size), self.pooling)
        write_json(folder / "cross.json", {"pooling": self.pooling})

    def logits(self, inputs: dict[str, Tensor], mode: str) -> Tensor:
        """Scores of padded pairs on any device, shape (pairs,), float32."""
        placed = {name: tensor.to(device()) for name, tensor in inputs.items()}
        with precision(mode):
            hidden = self.encoder(**placed).last_hidden_state
        pooled = self.dropout(pool(hidden, placed["attention_mask"], self.pooling))
        scores: Tensor = self.head(pooled)[:, 0]
        return scores

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
        return self.logits(template.pairs(queries, passages, multiple), mode)

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
        scores: Ids = self.logits(full, mode)[: len(batch)].cpu().numpy()
        return scores
