"""Similarity of queries by a dual encoder's query vectors: their cosine, 0 where it is negative."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tandem.artifact import Artifact, Job
from tandem.audits.similar.asked import TRAIN, Asked
from tandem.audits.similar.nearest import Array, reaching
from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.inputs import require_dataset

CHUNK = 512  # pairs whose vectors stay in the processor's cache
ROUNDING = 2.0**-24  # float32's unit round-off


class VectorCosine:
    """cos(q, p) of unit vectors.

    A matrix product in float32 only proposes: its last bits depend on threads and blocks. The similarity that counts is
    summed in float64 in one fixed order and rounded to float32.

    Args:
        others: embeddings of the other queries, split after split.
        train: embeddings of the training queries.
    """

    name = "cosine of query vectors"

    def __init__(self, others: Sequence[Embeddings], train: Embeddings) -> None:
        self.of_train = train
        self.others = np.concatenate([unit(part.take(0, part.rows)) for part in others])
        # Sums of d products of unit vectors: each is off by at most d round-offs, the cut and the pair beside it.
        self.margin = 2 * (train.dimension + 8) * ROUNDING
        self._columns: tuple[slice, Array] | None = None

    def block(self, others: slice, train: slice, depth: int, floors: Array) -> Array:
        """Similarities of what may be among the best `depth` of a row, -inf elsewhere; float32."""
        if self._columns is None or self._columns[0] != train:
            self._columns = train, unit(self.of_train.take(train.start, train.stop))
        queries, vectors = self.others[others], self._columns[1]
        scores = queries @ vectors.T
        row, column = reaching(scores, depth, floors, self.margin)
        made = np.full(scores.shape, -np.inf, np.float32)
        made[row, column] = cosines(queries, vectors, row, column)
        return made

    def pairs(self, others: Array, train: Array) -> Array:
        """Similarities of pairs, float32."""
        rows, at = np.unique(train, return_inverse=True)
        return cosines(self.others, self._rows(rows), others, at)

    def _rows(self, rows: Array) -> Array:
        """Unit vectors of some training queries."""
        made = np.empty((len(rows), self.of_train.dimension), np.float32)
        for first, vectors in self.of_train.blocks():
            here = np.flatnonzero((rows >= first) & (rows < first + len(vectors)))
            made[here] = unit(np.asarray(vectors[rows[here] - first]))
        return made


def unit(vectors: Array) -> Array:
    """Vectors of length 1, float32; a vector of zeros stays."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    made: Array = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0).astype(np.float32)
    return made


def cosines(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    """Products of unit vectors left[rows[i]] · right[columns[i]], between 0 and 1, shape (pairs,), float32."""
    made = np.empty(len(rows), np.float32)
    for at in (slice(i, i + CHUNK) for i in range(0, len(rows), CHUNK)):
        products = np.multiply(left[rows[at]], right[columns[at]], dtype=np.float64)
        made[at] = products.sum(axis=1).clip(0, 1)
    return made


def open_vectors(job: Job, others: Asked, train: Asked) -> VectorCosine:
    """The similarity by the inputs `vectors.<split>`.

    Raises:
        UserError: a split's vectors are missing, or they are of another dataset, model or set of queries.
    """
    splits = list(dict.fromkeys(others.splits))
    opened = {split: _open(job, split) for split in (TRAIN, *splits)}
    models = {split: Path(one.artifact.upstream["model"]).name for split, one in opened.items()}
    if len(set(models.values())) > 1:
        told = ", ".join(f"{split} with {model}" for split, model in models.items())
        raise UserError(f"similar_queries: queries were embedded by several models ({told}); use one")
    for asked, parts in ((train, [TRAIN]), (others, splits)):
        if [query for split in parts for query in _ids(opened[split].artifact)] != asked.ids:
            folders = ", ".join(str(opened[split].artifact.folder) for split in parts)
            raise UserError(f"{folders}: not the queries of {job.inputs['dataset'].folder}; encode them again")
    return VectorCosine([opened[split] for split in splits], opened[TRAIN])


def _open(job: Job, split: str) -> Embeddings:
    """The embeddings of a split's queries."""
    role = f"vectors.{split}"
    if role not in job.inputs:
        have = ", ".join(sorted(name for name in job.inputs if name.startswith("vectors.")))
        raise UserError(f"similar_queries: {role} is missing (given: {have}); give vectors of every split or of none")
    require_dataset(job, role)
    return Embeddings(job.inputs[role], "queries")


def _ids(artifact: Artifact) -> list[str]:
    """The queries that are embedded, in row order."""
    ids: list[str] = pq.read_table(artifact.path("ids.parquet"))["query_id"].to_pylist()
    return ids
