"""An index from passages: trained on a seeded sample, filled a part at a time, its inverted lists merged on disk.

Inner product is the metric throughout, whether vectors have length 1 or not. HNSW takes it too, though it is no
distance: long vectors draw many links, and recall of vectors that are not normalised may be lower.

k-means is Lloyd's algorithm as FAISS runs it for inner products: centroids have length 1, and one without points takes
half of the largest. FAISS's own would be tied to one thread to give the same bits; here points are assigned in pieces
of a fixed size side by side, or on GPUs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from faiss.contrib.ondisk import merge_ondisk

from tandem.cluster.progress import Progress
from tandem.errors import UserError
from tandem.retrieval.embeddings import Embeddings
from tandem.retrieval.indexes.threads import Nearest, Threads, faiss_error
from tandem.retrieval.indexes.types import factory
from tandem.stages.retrieval import IndexParams

Floats = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]

PIECE = 4096  # passages that are assigned and added together
ITERATIONS = 10  # FAISS's number for inverted lists
EPSILON = 1 / 1024  # FAISS's: how far the halves of a split centroid are moved apart
TOGETHER = 64  # centroids whose points are added up by one thread at a time


def sample(passages: Embeddings, size: int, seed: int) -> Floats:
    """Vectors of `size` passages in the order of their rows, from every block in proportion, shape (size, dim)."""
    vectors = np.empty((size, passages.dimension), np.float32)
    for number in range(len(passages)):
        first = number * passages.size
        last = min(first + passages.size, passages.rows)
        start, stop = first * size // passages.rows, last * size // passages.rows
        drawn = np.random.default_rng([seed, number]).choice(last - first, stop - start, replace=False)
        vectors[start:stop] = passages.block(number)[np.sort(drawn)]
    return vectors


def pieces(passages: Embeddings, rows: range) -> Iterator[range]:
    """The rows in pieces of at most `PIECE` that lie in one block each."""
    for first in range(rows.start // passages.size * passages.size, rows.stop, passages.size):
        last = min(first + passages.size, rows.stop)
        for start in range(max(first, rows.start), last, PIECE):
            yield range(start, min(start + PIECE, last))


def read(passages: Embeddings, piece: range) -> Floats:
    """The vectors of a piece, shape (rows of the piece, dim)."""
    number, start = divmod(piece.start, passages.size)
    return np.ascontiguousarray(passages.block(number, slice(start, start + len(piece))), np.float32)


def centroids(vectors: Floats, count: int, seed: int, threads: Threads, gpu: str = "none") -> Floats:
    """Centroids of at least `count` vectors by the angle between them, shape (count, dim), of length 1.

    `seed` draws the vectors to start from.
    """
    centres = unit(vectors[np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))])
    for _ in range(ITERATIONS):
        index = faiss.IndexFlatIP(centres.shape[1])
        index.add(centres)
        labels = assign(Nearest(index, gpu), vectors, threads)
        centres = unit(_sums(vectors, labels, count, threads))
    return centres


def unit(vectors: Floats) -> Floats:
    """The vectors at length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def assign(nearest: Nearest, vectors: Floats, threads: Threads) -> Labels:
    """The nearest vector of an index for each vector, shape (vectors,), a piece at a time."""
    parts = (vectors[start : start + PIECE] for start in range(0, len(vectors), PIECE))
    return np.concatenate(list(threads.map(nearest, parts)))


def _sums(vectors: Floats, labels: Labels, count: int, threads: Threads) -> Floats:
    """Sum of the vectors of each label, in the order of the vectors; empty ones split the largest."""
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=count)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    sums = np.zeros((count, vectors.shape[1]), np.float32)

    def add(first: int) -> None:
        own = np.arange(first, min(first + TOGETHER, count))
        own = own[sizes[own] > 0]
        if len(own):
            points = vectors[order[starts[own[0]] : ends[own[-1]]]]
            sums[own] = np.add.reduceat(points, starts[own] - starts[own[0]], axis=0)

    for _ in threads.map(add, range(0, count, TOGETHER)):
        pass
    _split(sums, sizes)
    return sums


def _split(sums: Floats, sizes: Labels) -> None:
    """Give every empty centroid half of the largest one's points, in place."""
    apart = np.where(np.arange(sums.shape[1]) % 2, -EPSILON, EPSILON).astype(np.float32)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        sums[empty], sums[largest] = sums[largest] * (1 + apart), sums[largest] * (1 - apart)
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]


INDEX, LISTS = "index.faiss", "lists.ivfdata"
QUANTIZERS = (faiss.IndexFlat, faiss.IndexHNSWFlat)  # of lists whose centroids are learned here
MERGED = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)


def empty(params: IndexParams, dimension: int) -> Any:
    """An untrained index of sized parameters; a `UserError` where FAISS knows no such index."""
    name = factory(params, dimension)
    try:
        index = faiss.index_factory(dimension, name, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise UserError(f"index: FAISS makes no {name} of {dimension} dimensions: {faiss_error(error)}") from None
    inner = chain(index)[1]
    if isinstance(inner, faiss.IndexHNSW) and params.ef_construction:
        inner.hnsw.efConstruction = params.ef_construction
    if isinstance(inner, faiss.IndexIVFScalarQuantizer) and inner.sq.qtype == faiss.ScalarQuantizer.QT_fp16:
        inner.by_residual = False  # differences from centroids would be rounded; the embeddings are fp16 as they are
    return index


def chain(index: Any) -> tuple[list[Any], Any]:
    """The transforms that vectors go through first, and the index behind them."""
    whole: Any = faiss.downcast_index(index)
    if not isinstance(whole, faiss.IndexPreTransform):
        return [], whole
    steps: Any = whole.chain
    return [faiss.downcast_VectorTransform(steps.at(i)) for i in range(steps.size())], faiss.downcast_index(whole.index)


def is_merged(index: Any) -> bool:
    """Whether its parts become one index by merging inverted lists."""
    inner = chain(index)[1]
    return isinstance(inner, MERGED) and not isinstance(inner, faiss.IndexIVFPQR)


def train(index: Any, vectors: Floats, seed: int, threads: Threads, gpu: str) -> None:
    """Learn what the index needs from a sample, in place: rotation, lists' centroids, quantiser, in this order.

    The sample has the shape (passages, dim). Threads learn the centroids, one thread the rest.
    """
    transforms, inner = chain(index)
    with _quiet_codes(transforms, inner, len(vectors)):
        for transform in transforms:
            if not transform.is_trained:
                _check_rotation(transform, len(vectors))
                transform.train(vectors)
            vectors = transform.apply(vectors)
    if isinstance(inner, faiss.IndexIVF):
        quantizer = faiss.downcast_index(inner.quantizer)
        if isinstance(quantizer, QUANTIZERS) and not quantizer.ntotal:
            quantizer.add(centroids(vectors, inner.nlist, seed, threads, gpu))
    inner.train(vectors)
    index.is_trained = True


def _check_rotation(transform: Any, sample: int) -> None:
    """Refuse to learn OPQ from fewer vectors than dimensions: FAISS would write beyond the end of its arrays."""
    least = max(transform.d_in, transform.d_out)
    if isinstance(transform, faiss.OPQMatrix) and sample < least:
        raise UserError(f"index: OPQ of {least} dimensions cannot be learned from {sample} passages; leave it out")


@contextmanager
def _quiet_codes(transforms: Sequence[Any], inner: Any, sample: int) -> Iterator[None]:
    """Keep FAISS from warning of few vectors for each part of a code and each round: 2,400 lines on a small corpus.

    A rotation learns with codes of 8 bits, FAISS's default, or of as many as `sample` vectors are enough for.
    """
    if isinstance(inner, faiss.IndexPQ | faiss.IndexIVFPQ):
        inner.pq.cp.min_points_per_centroid = 1
    rotations = [transform for transform in transforms if isinstance(transform, faiss.OPQMatrix)]
    bits = min(8, sample.bit_length() - 1)
    codes = [faiss.ProductQuantizer(rotation.d_out, rotation.M, bits) for rotation in rotations]
    for rotation, code in zip(rotations, codes, strict=True):
        code.cp.min_points_per_centroid = 1
        rotation.pq = code
    yield
    for rotation in rotations:
        rotation.pq = None


def fill(index: Any, passages: Embeddings, rows: range, threads: Threads, gpu: str, progress: Progress) -> None:
    """Add passages in the order of their rows.

    Several threads look up lists, a piece each; one thread adds everything, a graph's nodes one after the other. Where
    lists are merged later, passages keep their rows as ids.
    """
    if not is_merged(index):
        for piece in pieces(passages, rows):
            index.add(read(passages, piece))
            progress.add(len(piece))
        return
    transforms, inner = chain(index)
    nearest = Nearest(faiss.downcast_index(inner.quantizer), gpu)

    def prepare(piece: range) -> tuple[range, Floats, Labels]:
        vectors = read(passages, piece)
        for transform in transforms:
            vectors = transform.apply(vectors)
        return piece, vectors, nearest(vectors)

    for piece, vectors, labels in threads.map(prepare, pieces(passages, rows)):
        ids = np.arange(piece.start, piece.stop, dtype=np.int64)
        inner.add_core(len(piece), *(faiss.swig_ptr(array) for array in (vectors, ids, labels)))
        progress.add(len(piece))
    index.ntotal = inner.ntotal


def merge(trained: Path, parts: Sequence[Path], folder: Path) -> None:
    """Write one index of all parts: `index.faiss`, and its lists one after the other in `lists.ivfdata`.

    The parts' lists are mapped, not loaded: memory does not grow with the corpus.
    """
    index = faiss.read_index(str(trained))
    merge_ondisk(index, [str(part) for part in parts], str(folder / LISTS))
    lists: Any = faiss.downcast_InvertedLists(chain(index)[1].invlists)
    lists.filename = LISTS  # whatever this folder is called later
    faiss.write_index(index, str(folder / INDEX))
