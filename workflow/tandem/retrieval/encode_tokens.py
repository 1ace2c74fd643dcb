"""Stages `token_vectors` and `term_weights`: encodings that are not a vector a text, of passages or a split's queries.

A vector of each token, by late interaction: a row of a block is a token; blocks, shards and indexes are those of
`embeddings`. `offsets.npy` says where each text's rows are; it follows from token ids alone, so that a block knows its
texts before any is computed. A weight of each term, by a sparse encoder: a row of a block is a text.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from tandem.cluster.progress import Progress
from tandem.data.rows import Rows
from tandem.errors import UserError
from tandem.models.dual import encode_batches, load_dual
from tandem.models.ragged import Ids, Ragged, ends
from tandem.models.sparse import LOGITS, sparse_rows
from tandem.models.tokens import Tokens
from tandem.retrieval import encode
from tandem.retrieval.embeddings import Vectors
from tandem.retrieval.encode import TOWERS, Encoder, select
from tandem.retrieval.inputs import require_part
from tandem.retrieval.term_weights import SparseBlocks
from tandem.stages.retrieval import EmbeddingsParams
from tandem.store.job import Job

TEXTS = 1 << 16  # whose tokens are counted together


@dataclass(frozen=True)
class Piece(Ragged):
    """Texts, and which of their tokens' vectors are wanted: from `first`, `rows` of them."""

    first: int = 0
    rows: int = 0
    tokens: int = 0  # of the texts, that have vectors


class TokenEncoder(Encoder):
    """Late interaction's tower with the token ids it reads; its rows are tokens that have vectors."""

    load = staticmethod(load_dual)
    unit = "tokens"

    def __init__(self, job: Job[EmbeddingsParams]) -> None:
        super().__init__(job)
        self.job = job

    @cached_property
    def texts(self) -> Rows | range:
        """The rows of the texts to encode, in order."""
        return select(self.job)[0]

    @cached_property
    def offsets(self) -> Ids:
        """Where each text's vectors begin and end."""
        return offsets(self.job)

    def read(self, rows: range) -> Piece:  # type: ignore[override]
        """The texts that rows of tokens belong to."""
        first = int(np.searchsorted(self.offsets, rows.start, "right")) - 1
        last = int(np.searchsorted(self.offsets, rows.stop, "left"))
        texts = super().read(np.asarray(self.texts[first:last]))
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        return Piece(texts.ids, texts.offsets, rows.start - begin, len(rows), end - begin)

    def encode(self, texts: Ragged, progress: Progress) -> Vectors:
        """Vectors of a piece's tokens, shape (tokens, dimension), fp16."""
        vectors = super().encode(texts, progress)
        flat: Vectors = vectors[vectors.any(axis=2)]
        if isinstance(texts, Piece) and len(flat) != texts.tokens:
            raise UserError(f"{self.tokens.folder}: a token's vector is 0; look for a model that has diverged")
        progress.add(len(flat) - len(vectors))  # which counts tokens
        return flat[texts.first : texts.first + texts.rows] if isinstance(texts, Piece) else flat


def offsets(job: Job[EmbeddingsParams]) -> Ids:
    """Where each text's rows begin and end, shape (texts + 1,).

    Raises:
        UserError: the model has one vector a text.
    """
    folder = require_part(job.inputs["model"], "dual")
    tokens, side = Tokens.open(job.inputs["tokens"]), TOWERS[job.params.side]
    model: Any = load_dual(folder)
    if len(model.shape(side, 1)) != 2:
        raise UserError(f"{folder}: has one vector a text; expected representation: multi or coil")
    rows, texts = select(job)[0], tokens.queries if side == "query" else tokens.passages
    parts = (texts.take(np.asarray(rows[first : first + TEXTS])) for first in range(0, len(rows), TEXTS))
    return ends(np.concatenate([np.empty(0, np.int64), *(model.counts(side, part, tokens.template) for part in parts)]))


def run_vectors_shard(job: Job[EmbeddingsParams]) -> dict[str, object]:
    """Compute a share of the blocks."""
    return encode.run_shard(job, TokenEncoder, range(int(offsets(job)[-1])))


def run_vectors(job: Job[EmbeddingsParams]) -> None:
    """Compute the blocks that no shard has computed, and write the manifest."""
    at = offsets(job)
    encode.run(job, TokenEncoder, range(int(at[-1])), at)


class TermEncoder(Encoder):
    """A sparse encoder's tower with the token ids it reads."""

    load = staticmethod(load_dual)
    blocks = SparseBlocks

    def encode(self, texts: Ragged, progress: Progress) -> csr_array:
        """Weights of texts, shape (texts, vocabulary), rounded to what is stored."""

        def count(lengths: Ids) -> None:
            progress.add(len(lengths), tokens=int(lengths.sum()))

        budget = max(1, min(self.budget, LOGITS // self.model.dimension))
        batches = encode_batches(self.model, self.tower, texts, self.template, self.mode, budget, count)
        return sparse_rows(batches, self.model.dimension, self.dtype)


def run_weights_shard(job: Job[EmbeddingsParams]) -> dict[str, object]:
    """Compute every n-th block, as of the stage `embeddings`."""
    return encode.run_shard(job, TermEncoder)


def run_weights(job: Job[EmbeddingsParams]) -> None:
    """Compute the blocks that no shard has computed, check every block, and write the manifest."""
    encode.run(job, TermEncoder)
