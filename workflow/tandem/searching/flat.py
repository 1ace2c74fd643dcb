"""FAISS's file of an `IndexFlatIP`, written as vectors pass: FAISS itself would hold all of them in memory."""

import struct
from pathlib import Path

import numpy as np

from tandem.progress import Progress
from tandem.retrieval.embeddings import Embeddings

# What faiss/impl/index_write.cpp writes of a flat index: its mark, dimension, number of vectors, two numbers without
# use, whether it is trained, the metric, and the number of values that follow.
HEADER = struct.Struct("<4siqqq?iQ")
MARK, UNUSED, INNER_PRODUCT = b"IxFI", 1 << 20, 0


def write_flat(path: Path, passages: Embeddings, progress: Progress) -> None:
    """Write what `faiss.write_index` writes of an `IndexFlatIP` of the passages: their vectors in float32."""
    rows, dimension = passages.rows, passages.dimension
    with open(path, "wb") as file:
        file.write(HEADER.pack(MARK, dimension, rows, UNUSED, UNUSED, True, INNER_PRODUCT, rows * dimension))
        for _, vectors in passages.blocks():
            file.write(np.ascontiguousarray(vectors, "<f4").data)
            progress.add(len(vectors))
