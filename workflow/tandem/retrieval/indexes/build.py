"""An index from passages: trained on a sample, filled a part at a time, its inverted lists merged on disk.

Inner product is the metric throughout, whether vectors have length 1 or not. HNSW takes it too, though it is no
distance: long vectors draw many links, and recall of vectors that are not normalised may be lower.
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
from tandem.retrieval.indexes.kmeans import Floats, Labels, centroids, pieces, read
from tandem.retrieval.indexes.threads import Nearest, Threads, faiss_error
from tandem.retrieval.indexes.types import factory
from tandem.stages.retrieval import IndexParams

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
