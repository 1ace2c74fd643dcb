"""How much storing vectors as int8 loses."""

import numpy as np

from tandem.retrieval.embeddings import NEAREST, FloatVectors, restore
from tandem.retrieval.exact import Array

# The loss by int8 is measured on the first rows of a block: nearest neighbours of the probes within the sample.
_SAMPLE = 1024
_PROBES = 64


def measure_kept_neighbours(vectors: FloatVectors, stored: Array) -> float | None:
    """Return the share of nearest neighbours that int8 keeps; None if there are too few vectors.

    The `NEAREST` neighbours of each of the first `_PROBES` vectors, by the dot product among the first `_SAMPLE`
    vectors, are compared before and after. If one number is much larger than the rest, it sets the scale, and the
    others are rounded coarsely. Sums are added in one order, whatever the number of threads.

    Args:
        vectors: shape (rows, dim).
        stored: the same vectors as `quantise` returns them, shape (rows,).
    """
    if len(vectors) <= 2 * NEAREST:
        return None
    exact = vectors[:_SAMPLE].astype(np.float64)
    rounded = restore(stored[:_SAMPLE]).astype(np.float64)
    probes = exact[:_PROBES]
    nearest_exact = _find_nearest(probes, exact)
    nearest_rounded = _find_nearest(probes, rounded)
    is_kept = (nearest_exact[:, :, None] == nearest_rounded[:, None]).any(axis=2)
    return float(is_kept.mean())


def _find_nearest(probes: Array, vectors: Array) -> Array:
    """Return the nearest vectors of each probe, shape (probes, `NEAREST`); probe i is vector i, and is left out."""
    scores = np.einsum("qd,pd->qp", probes, vectors)
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, :NEAREST]
