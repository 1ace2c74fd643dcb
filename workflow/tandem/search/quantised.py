"""Vectors as int8 with a scale each: about half the bytes of fp16.

    s = max_i |x_i| / 127, rounded up to 16 significant bits
    q_i = round(x_i / s), halves to even
    x'_i = s · q_i,  |x_i − x'_i| ≤ s / 2

A scale of 16 bits times a number of 7 is exact in float32: the vectors that are restored, and with them every score, do
not depend on who multiplies, and s · (q · p) may be computed in the place of x' · p. A vector of zeros has the scale 0.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Vectors = np.ndarray[Any, np.dtype[np.floating[Any]]]

LARGEST = 127
BITS = 16
ROWS = 1024  # at once: float64 is wide


def row(dimension: int) -> np.dtype[Any]:
    """A vector in a file: its float32 scale, then its int8 values, nothing between them."""
    return np.dtype([("scale", "<f4"), ("values", "i1", (dimension,))])


def quantise(vectors: Vectors) -> Array:
    """Vectors as rows of `row`.

    Args:
        vectors: finite, shape (rows, dim).
    Returns:
        Shape (rows,).
    """
    made = np.zeros(len(vectors), row(vectors.shape[1]))
    for at in (slice(start, start + ROWS) for start in range(0, len(vectors), ROWS)):
        wide = vectors[at].astype(np.float64)
        fraction, exponent = np.frexp(np.abs(wide).max(axis=1, initial=0.0) / LARGEST)
        scale = np.ldexp(np.ceil(np.ldexp(fraction, BITS)), exponent - BITS)[:, None]
        np.divide(wide, scale, out=wide, where=scale > 0)
        made["values"][at] = np.rint(wide)
        made["scale"][at] = scale[:, 0]
    return made


def restore(stored: Array) -> Vectors:
    """The vectors that rows of `row` stand for, float32, shape (rows, dim)."""
    made: Vectors = stored["values"].astype(np.float32)
    made *= stored["scale"][:, None]
    return made
