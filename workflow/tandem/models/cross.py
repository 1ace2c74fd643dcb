"""Cross-encoders: query and passage are read together; a head on the pooled vector gives the score.

Also stage `reranker`, which makes a published cross-encoder one of these.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.models.classifier import Classifier, save_whole
from tandem.models.encoding import equal_batches, pooled
from tandem.models.heads import check_reranker
from tandem.models.hub import check_length, load_encoder, load_tokenizer, save_encoder
from tandem.models.probe import check_pairs, check_pooling
from tandem.models.ragged import Ids, Ragged
from tandem.models.saving import describe_cross_encoder
from tandem.models.tokens import Inputs, Template, Texts
from tandem.stages.base import Params
from tandem.store.files import write_json
from tandem.store.job import Job, writing

# Lengths are padded to a multiple of STEP, so that a pair meets the same few tensor shapes whatever its company.
# Where oneDNN multiplies, the number of rows changes no bit: nothing is filled up, and a finer step pads less.
STEP, FINE_STEP = 16, 8
HEAD = "2_Dense/model.safetensors"
COSINE_SCALE = 20.0  # of `segments`, where training starts: 1 / 0.05, the usual temperature of cosines


class CrossEncoder(nn.Module):
    """An encoder, pooling and a head: one logit per pair; its sigmoid is the probability of relevance.

    With `cls` pooling this is RocketQAv2's re-ranker: a linear layer on the raw vector of [CLS] (§3.2). With `segments`
    the pair is read together as well, but the head reads a single number, the cosine of the query's and the passage's
    mean vector: a cross-encoder that starts from a dual encoder's tower then starts near the dual encoder's scores.
    With `classifier` pooling and head are those of the family's `…ForSequenceClassification`, as published
    cross-encoders have them.

    Attributes:
        packed: tokens that a packed row is filled up to in training; None pads pairs. Set by `accelerate`.
        any_rows: whether `score` may compute any number of pairs at once. Set by `accelerate`.
    """

    packed: int | None = None
    any_rows: bool = False

    def __init__(self, encoder: nn.Module, pooling: str, head: Classifier | None = None) -> None:
        super().__init__()
        config: Any = encoder.config
        self.encoder, self.pooling = encoder, pooling
        self.dropout = nn.Dropout(getattr(config, "hidden_dropout_prob", 0.1))
        self.head: nn.Module = head or nn.Linear(1 if pooling == "segments" else int(config.hidden_size), 1)

    @classmethod
    def start(cls, folder: Path, pooling: str) -> Self:
        """A cross-encoder from a pre-trained encoder; its new head is drawn from torch's generator.

        With `classifier`, a head of one label that the folder has is kept.

        Raises:
            UserError: the encoder cannot be pooled so, or its tokenizer puts nothing between two texts.
        """
        check_pairs(folder)
        if pooling == "classifier":
            encoder, classifier = Classifier.load(folder, new=True)
            return cls(encoder, pooling, classifier)
        model = cls(load_encoder(folder), pooling)
        check_pooling(model.encoder, pooling, folder)
        head: Any = model.head
        if pooling == "segments":
            nn.init.constant_(head.weight, COSINE_SCALE)
            nn.init.constant_(head.bias, -COSINE_SCALE / 2)  # probability 1/2 at a cosine of 1/2
        else:
            nn.init.normal_(head.weight, std=0.02)
            nn.init.zeros_(head.bias)
        return model

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The cross-encoder that `save` wrote."""
        pooling = read_pooling(folder)
        if pooling == "classifier":
            encoder, classifier = Classifier.load(folder)
            return cls(encoder, pooling, classifier)
        model = cls(load_encoder(folder), pooling)
        head = load_file(folder / HEAD)
        model.head.load_state_dict({name: head[f"linear.{name}"] for name in ("weight", "bias")})
        return model

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write a folder that transformers loads as the encoder, and sentence-transformers as a CrossEncoder.

        `AutoModelForSequenceClassification` loads it with the same scores, or refuses it: see `save_whole`.
        sentence-transformers has no module for `segments`: of these the card shows how to compute scores.
        """
        save_encoder(self.encoder, tokenizer, folder, partial(save_whole, head=self.head, pooling=self.pooling))
        if isinstance(self.head, nn.Linear):
            (folder / HEAD).parent.mkdir()
            head = {f"linear.{name}": p.detach().cpu().contiguous() for name, p in self.head.named_parameters()}
            save_file(head, folder / HEAD)
            if self.pooling != "segments":
                describe_cross_encoder(folder, self.head.in_features, self.pooling)
        write_json(folder / "cross.json", {"pooling": self.pooling})

    def logits(self, inputs: Inputs, mode: str, packed: int | None, multiple: int) -> Tensor:
        """Scores of pairs on any device, shape (pairs,), float32; see `pooled`."""
        pooling = self.head.pooling if isinstance(self.head, Classifier) else self.pooling
        vectors = pooled(self.encoder, inputs, pooling, mode, packed, multiple)
        scores: Tensor
        if isinstance(self.head, Classifier):
            scores = self.head(vectors)[:, 0]
        elif self.pooling == "segments":
            cosines = nn.functional.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=-1)
            scores = self.head(cosines[:, None])[:, 0]
        else:
            scores = self.head(self.dropout(vectors))[:, 0]
        return scores

    def forward(self, queries: Texts, passages: Texts, template: Template, mode: str, multiple: int = 1) -> Tensor:
        """Scores of pairs as one batch, padded or packed.

        Args:
            queries: token ids of each pair's query, without special tokens.
            multiple: pad the length up to a multiple of this; of no effect where pairs are packed.
        Returns:
            Logits, shape (pairs,), float32.
        """
        return self.logits(self.pairs(Ragged.of(queries), Ragged.of(passages), template), mode, self.packed, multiple)

    def pairs(self, queries: Ragged, passages: Ragged, template: Template) -> Inputs:
        """Pairs as the encoder reads them; with `segments` all tokens are of type 0, as a dual encoder knows them."""
        inputs = template.pair_inputs(queries, passages)
        if self.pooling == "segments" and inputs.types is not None:
            inputs.types.fill(0)
        return inputs

    @torch.inference_mode()
    def score(self, queries: Texts, passages: Texts, template: Template, mode: str, budget: int) -> Ids:
        """Scores that do not depend on which pairs are scored together.

        Pairs are grouped by padded length (a multiple of `STEP`) and computed in batches of a fixed number of rows,
        the last one filled up: a pair then always meets the same tensor shape. With `any_rows` lengths are multiples of
        `FINE_STEP` and nothing is filled up. `budget` is tokens per batch, see `equal_batches`; another budget may
        change last bits.

        Returns:
            Logits, shape (pairs,), float32.
        """
        self.eval()
        first, second = Ragged.of(queries), Ragged.of(passages)
        step = FINE_STEP if self.any_rows else STEP
        padded = -(-template.pair_lengths(np.diff(first.offsets), np.diff(second.offsets)) // step) * step
        scores = np.empty(len(padded), np.float32)
        for batch, rows in equal_batches(padded, budget):
            inputs = self.pairs(first.take(batch), second.take(batch), template)
            inputs = inputs if self.any_rows else inputs.filled(rows)
            logits = self.logits(inputs, mode, packed=None, multiple=int(padded[batch[0]]))
            scores[batch] = logits[: len(batch)].cpu().numpy()
        return scores

    def check_lengths(self, query: int, passage: int, template: Template, where: str) -> None:
        """Refuse pairs that, padded, have more tokens than the encoder has positions for; `where` has the limits."""
        both = query + passage + template.extra[1]
        padded = -(-min(both, template.longest_pair or both) // STEP) * STEP
        check_length(self.encoder, padded, f"{where}: query with passage, padded,")


def run_reranker(job: Job[Params]) -> None:
    """Stage `reranker`: the published cross-encoder of the input `encoder`, with its own head."""
    folder = job.inputs["encoder"].folder / "hf"
    check_reranker(folder)
    check_pairs(folder)
    encoder, head = Classifier.load(folder)
    model = CrossEncoder(encoder, "classifier", head)
    with writing(job) as draft:
        model.save(draft.folder / "cross", load_tokenizer(folder))
        write_json(draft.path("model.json"), {"objective": "cross", "parts": ["cross"], "steps": 0})


def read_pooling(folder: Path) -> str:
    """The pooling of a saved cross-encoder."""
    return str(json.loads((folder / "cross.json").read_text(encoding="utf-8"))["pooling"])
