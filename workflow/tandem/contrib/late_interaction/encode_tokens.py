"""Stage `token_vectors`: write vectors of texts' tokens in blocks, whose rows are tokens.

`offsets.npy` contains the bounds of each text's rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem.cluster.progress import Progress
from tandem.data.rows import Rows
from tandem.errors import UserError
from tandem.models.dual import load_dual
from tandem.models.ragged import Ids, Ragged, sum_lengths
from tandem.models.tokens import Tokens
from tandem.retrieval.embeddings import FloatVectors
from tandem.retrieval.encode import TOWERS, SideEncoder, run, run_shard
from tandem.retrieval.inputs import require_part
from tandem.stages.retrieval import EmbeddingsParams, side_encoder
from tandem.store.job import Job

__all__ = ["TokenEncoder", "run", "run_shard"]

_TEXTS_PER_COUNT = 1 << 16  # texts whose tokens are counted together


@dataclass(frozen=True)
class _EncodedPiece(Ragged):
    """Texts, the number of their tokens that have vectors, and which of these vectors are the rows of a block."""

    tokens: int
    rows: slice


@side_encoder("token")
class TokenEncoder(SideEncoder):
    """Run a tower of late interaction on token ids; each row is a token that has a vector."""

    load = staticmethod(load_dual)
    unit = "tokens"

    @classmethod
    def find_offsets(cls, job: Job[EmbeddingsParams], texts: Rows | range) -> Ids:
        """Return the bounds of each text's rows, shape (texts + 1,), computed from the token ids only.

        Raises:
            UserError: the model has one vector per text.
        """
        folder = require_part(job.inputs["model"], "dual")
        tokens = Tokens.open(job.inputs["tokens"])
        side = TOWERS[job.params.side]
        model: Any = load_dual(folder)
        if len(model.shape(side, 1)) != 2:
            raise UserError(
                f"{folder}: has one vector a text; expected representation: multi or coil"
            )
        ids = tokens.queries if side == "query" else tokens.passages
        counts = [np.empty(0, np.int64)]
        for first in range(0, len(texts), _TEXTS_PER_COUNT):
            some = ids.take(np.asarray(texts[first : first + _TEXTS_PER_COUNT]))
            counts.append(model.counts(side, some, tokens.template))
        return sum_lengths(np.concatenate(counts))

    def read(self, rows: range) -> _EncodedPiece:  # type: ignore[override]
        """Return the texts to which these rows of tokens belong."""
        assert self.offsets is not None
        first = int(np.searchsorted(self.offsets, rows.start, "right")) - 1
        last = int(np.searchsorted(self.offsets, rows.stop, "left"))
        texts = super().read(np.asarray(self.texts[first:last]))
        begin, end = self.offsets[[first, last]].tolist()
        places = slice(rows.start - begin, rows.stop - begin)
        return _EncodedPiece(texts.ids, texts.offsets, end - begin, places, titles=texts.titles)

    def encode(self, texts: Ragged, progress: Progress) -> FloatVectors:
        """Return the vectors of a piece's tokens, shape (tokens, dimension), fp16."""
        vectors = super().encode(texts, progress)
        flat: FloatVectors = vectors[vectors.any(axis=2)]
        if isinstance(texts, _EncodedPiece) and len(flat) != texts.tokens:
            raise UserError(
                f"{self.tokens.folder}: a token's vector is 0; look for a model that has diverged"
            )
        flat = flat[texts.rows] if isinstance(texts, _EncodedPiece) else flat
        progress.add(len(flat) - len(vectors))  # the progress counts tokens, not texts
        return flat
