"""Stage `index`: an index of the passages' vectors, in parts of a fixed number of rows, by inner product or by signs.

Shards fill whole parts. The stage fills the missing ones, and merges inverted lists on disk: how the work is divided
changes no byte, and a killed build continues after its last finished part. No torch is needed, as in `retrieve`.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from faiss.contrib.ondisk import merge_ondisk

from tandem.cluster.progress import Progress, say
from tandem.cluster.work import Pieces, compute_origin, split_spans
from tandem.config.indexes import SIGN_INDEX
from tandem.contrib.indexes.copies import digest_rows, find_copies
from tandem.contrib.indexes.index_types import (
    LEAST_VECTORS_PER_LIST,
    check_index,
    fill_sizes,
    has_parameter,
    name_factory,
    sample_size,
)
from tandem.contrib.indexes.options import IndexParams
from tandem.data.columns import Floats
from tandem.data.rows import Rows
from tandem.errors import UserError
from tandem.extras.faiss_gpus import NONE, explain_errors, lease_gpus
from tandem.extras.kmeans import VECTORS_PER_PIECE, Nearest, find_centroids
from tandem.extras.searched_indexes import COPIES_FILE
from tandem.retrieval.embeddings import Embeddings, name_block
from tandem.retrieval.exact import Array
from tandem.retrieval.faiss_search import Threads, open_threads
from tandem.store.artifact import check_files
from tandem.store.files import link, write_json
from tandem.store.job import Job, plain, writing

_TRAINED_FILE = "trained.faiss"
_PARTS_FOLDER = "work"
INDEX_FILE = "index.faiss"
INVERTED_LISTS_FILE = "lists.ivfdata"
_QUANTIZERS = (faiss.IndexFlat, faiss.IndexHNSWFlat)  # for lists with centroids learned here
_MERGED = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
_FLAT = (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2)
# limits of FAISS on GPUs: the bytes of a product code, each of 8 bits, and the types of rounded numbers
_GPU_CODE_BYTES = (1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96)
_GPU_SCALARS = (
    faiss.ScalarQuantizer.QT_4bit,
    faiss.ScalarQuantizer.QT_4bit_uniform,
    faiss.ScalarQuantizer.QT_6bit,
    faiss.ScalarQuantizer.QT_8bit,
    faiss.ScalarQuantizer.QT_8bit_direct,
    faiss.ScalarQuantizer.QT_8bit_uniform,
    faiss.ScalarQuantizer.QT_fp16,
)


def sample_vectors(passages: Embeddings, size: int, seed: int) -> Floats:
    """Return vectors of `size` passages in the order of their rows, from every block in proportion, (size, dim)."""
    vectors = np.empty((size, passages.dimension), np.float32)
    for number in range(len(passages)):
        first = number * passages.size
        last = min(first + passages.size, passages.rows)
        start = first * size // passages.rows
        stop = last * size // passages.rows
        drawn = np.random.default_rng([seed, number]).choice(
            last - first, stop - start, replace=False
        )
        vectors[start:stop] = passages.read_block(number)[np.sort(drawn)]
    return vectors


def cut_rows(rows: range, size: int) -> Iterator[range]:
    """Yield the rows in pieces of at most `VECTORS_PER_PIECE`, each within one block of `size` rows."""
    for first in range(rows.start // size * size, rows.stop, size):
        block = range(max(first, rows.start), min(first + size, rows.stop))
        yield from (
            block[at : at + VECTORS_PER_PIECE] for at in range(0, len(block), VECTORS_PER_PIECE)
        )


def make_empty(params: IndexParams, dimension: int) -> Any:
    """Return an untrained index with sized parameters; a `UserError` if FAISS knows no such index."""
    name = name_factory(params, dimension)
    # the Hamming distance of signs has no other metric
    metric = faiss.METRIC_L2 if SIGN_INDEX in name else faiss.METRIC_INNER_PRODUCT
    with explain_errors(f"index: FAISS makes no {name} of {dimension} dimensions"):
        index = faiss.index_factory(dimension, name, metric)
    inner = split_chain(index)[1]
    graph = find_graph(index)
    if inner.metric_type != metric:
        raise UserError(
            f"index: FAISS compares by distances in {name}, not by inner products; name another"
        )
    if graph is not None and params.ef_construction:
        graph.hnsw.efConstruction = params.ef_construction
    if (
        isinstance(inner, faiss.IndexIVFScalarQuantizer)
        and inner.sq.qtype == faiss.ScalarQuantizer.QT_fp16
    ):
        # differences from centroids would be rounded; the embeddings themselves are fp16
        inner.by_residual = False
    return index


def split_chain(index: Any) -> tuple[list[Any], Any]:
    """Return the transforms that vectors pass through first, and the index after them."""
    whole: Any = faiss.downcast_index(index)
    if not isinstance(whole, faiss.IndexPreTransform):
        return [], whole
    steps: Any = whole.chain
    return [
        faiss.downcast_VectorTransform(steps.at(i)) for i in range(steps.size())
    ], faiss.downcast_index(whole.index)


def find_graph(index: Any) -> Any:
    """Return the graph that is searched, after transforms and inside an index that re-ranks; None without any."""
    inner = split_chain(index)[1]
    while isinstance(inner, faiss.IndexRefine):
        inner = split_chain(inner.base_index)[1]
    return inner if isinstance(inner, faiss.IndexHNSW) else None


def has_gpu_form(index: Any) -> bool:
    """Return whether FAISS searches this index on GPUs: plain vectors, and inverted lists, after any transform.

    There it has no graphs, signs, refinements, or codes outside of lists, no lists whose centroids are not plain
    vectors, and only some sizes of codes. Types that extend one of these do not count: FAISS would copy their vectors,
    in Panorama's layout, as if they were plain ones.
    """
    inner = split_chain(index)[1]
    if not is_merged(index):
        return type(inner) in _FLAT
    if type(faiss.downcast_index(inner.quantizer)) not in _FLAT:
        return False
    if isinstance(inner, faiss.IndexIVFPQ):
        return inner.pq.nbits == 8 and inner.pq.M in _GPU_CODE_BYTES
    return isinstance(inner, faiss.IndexIVFFlat) or inner.sq.qtype in _GPU_SCALARS


def is_merged(index: Any) -> bool:
    """Return whether its parts become one index by merging inverted lists.

    Only indexes of exactly these types are merged, not those of a type that extends them.
    """
    inner = split_chain(index)[1]
    return type(inner) in _MERGED


def train(index: Any, vectors: Floats, seed: int, threads: Threads, gpu: str) -> None:
    """Train what the index needs on a sample, in place: rotation, lists' centroids, quantiser, in this order.

    The sample has the shape (passages, dim). Threads learn the centroids, one thread the rest.
    """
    transforms, inner = split_chain(index)
    for transform in transforms:
        if not transform.is_trained:
            _train_transform(transform, vectors)
        vectors = transform.apply(vectors)
    if isinstance(inner, faiss.IndexIVF):
        quantizer = faiss.downcast_index(inner.quantizer)
        if isinstance(quantizer, _QUANTIZERS) and not quantizer.ntotal:
            quantizer.add(find_centroids(vectors, inner.nlist, seed, threads, gpu))
    if isinstance(inner, faiss.IndexPQ | faiss.IndexIVFPQ):
        inner.pq.cp.min_points_per_centroid = 1  # FAISS would warn for each part of a code
    inner.train(vectors)
    index.is_trained = True


def _train_transform(transform: Any, vectors: Floats) -> None:
    """Train a transform; OPQ with codes of 8 bits, FAISS's default, or of as many bits as there are enough vectors for.

    Otherwise FAISS would warn of few vectors for each part of a code and each round: 2,400 lines on a small corpus.
    (With fewer vectors than dimensions it would write beyond the end of its arrays: `check_index` refuses that.)
    """
    if not isinstance(transform, faiss.OPQMatrix):
        transform.train(vectors)
        return
    code = faiss.ProductQuantizer(
        transform.d_out, transform.M, min(8, len(vectors).bit_length() - 1)
    )
    code.cp.min_points_per_centroid = 1
    transform.pq = code
    transform.train(vectors)
    transform.pq = None


class Build:
    """Builds an index; a `UserError` if parameters do not fit the vectors, or FAISS lacks the index."""

    def __init__(self, job: Job[IndexParams], threads: Threads) -> None:
        check_files(job.inputs["passages"], ["meta.json"])
        self.job = job
        self.threads = threads
        self.passages = Embeddings(job.inputs["passages"], "passages")
        rows = self.passages.rows
        dimension = self.passages.dimension
        self.params = fill_sizes(job.params, rows, dimension)
        check_index(
            self.params, f"indexes.{job.key.rpartition('-')[0].rpartition('@')[2]}", rows, dimension
        )
        self.index = make_empty(self.params, dimension)
        self.factory = name_factory(self.params, dimension)
        self.parts = {
            f"part-{n:05d}.faiss": part
            for n, part in enumerate(split_spans(rows, self.params.part))
        }
        self.pieces = Pieces(
            job.out / _PARTS_FOLDER, compute_origin(job, job.inputs["passages"].manifest.checksums)
        )
        self.gpu = lease_gpus(job)
        self.unchecked = set(range(len(self.passages)))

    def verify(self, rows: range) -> None:
        """Compare the blocks of rows with their manifest before they are read, each once; a `UserError` names one."""
        size = self.passages.size
        blocks = self.unchecked & set(range(rows.start // size, -(-rows.stop // size)))
        list(
            self.threads.map(
                lambda block: check_files(self.passages.artifact, [name_block(block)]), blocks
            )
        )
        self.unchecked -= blocks

    def train(self) -> None:
        """Train the index, unless it is trained already."""
        if self.pieces.facts(_TRAINED_FILE):
            return
        if not self.index.is_trained:
            size = sample_size(self.params, self.passages.rows)
            say(f"index {self.job.key} · trains {self.factory} on {size:,} vectors")
            # A code of b bits has 2ᵇ centroids.
            enough = LEAST_VECTORS_PER_LIST << self.params.bits
            if has_parameter(self.params, "bits") and size < enough:
                say(f"index {self.job.key} · {enough:,} would be better for its codes")
            self.verify(range(self.passages.rows))
            vectors = sample_vectors(self.passages, size, self.params.seed)
            with explain_errors(f"index: FAISS cannot build {self.factory}"):
                train(self.index, vectors, self.params.seed, self.threads, self.gpu)
        self.save(_TRAINED_FILE, self.index)

    def fill(self, names: Iterable[str]) -> None:
        """Fill the missing parts."""
        missing = {name: self.parts[name] for name in names if not self._is_filled(name)}
        total = sum(map(len, missing.values()))
        with Progress(f"index {self.job.key}", total, "vectors", quiet=not missing) as progress:
            for name, rows in missing.items():
                self.verify(rows)
                with explain_errors(f"index: FAISS cannot build {self.factory}"):
                    index = faiss.read_index(str(self.pieces.folder / _TRAINED_FILE))
                    self._add(index, rows, self._copies(name, index), progress)
                    self.save(name, index)

    def vectors(self, rows: range) -> Floats:
        """Return the vectors of some rows, shape (rows, dim)."""
        return np.ascontiguousarray(self.passages.take(rows.start, rows.stop), np.float32)

    def copies_name(self, name: str) -> str:
        """Return the name of the piece with a part's copies, which is next to the part."""
        return f"copies-{name.removeprefix('part-').removesuffix('.faiss')}.npy"

    def _is_filled(self, name: str) -> bool:
        """Return whether a part, and the piece that lists which of its rows are copies, are finished and whole."""
        names = [name] if find_graph(self.index) is None else [name, self.copies_name(name)]
        return all(map(self.pieces.facts, names))

    def _copies(self, name: str, index: Any) -> Array:
        """Return the copies among a part's rows, as `find_copies` does, in a separate piece; none without a graph.

        Vectors are equal for a graph of codes if their codes are.
        """
        graph = find_graph(index)
        rows = self.parts[name]
        piece = self.copies_name(name)
        if graph is None:
            return np.empty((0, 2), np.uint32)
        encode = encode_by(index, graph)
        if not self.pieces.facts(piece):
            parts = self.threads.map(
                lambda own: digest_rows(encode(self.vectors(own))),
                cut_rows(rows, self.passages.size),
            )
            pairs = find_copies(parts, rows.start)
            self.pieces.write(piece, lambda path: save_array(path, pairs))
        copies: Array = np.load(self.pieces.folder / piece, allow_pickle=False)
        return copies

    def _add(self, index: Any, rows: range, copies: Array, progress: Progress) -> None:
        """Add passages in the order of their rows, without copies.

        Several threads look up lists, a piece each; one thread adds everything, a graph's nodes one after another.
        If lists are merged later, passages keep their rows as ids.
        """
        merged = is_merged(index)
        (transforms, inner) = split_chain(index)
        nearest = self._find_nearest(inner.quantizer) if merged else None
        is_added = np.ones(len(rows), bool)
        is_added[copies[:, 0].astype(np.int64) - rows.start] = False

        def prepare(piece: range) -> tuple[range, Floats, Rows | None]:
            """Return a piece's vectors to add, and the nearest centroid of each if lists are merged."""
            vectors = self.vectors(piece)[
                is_added[piece.start - rows.start : piece.stop - rows.start]
            ]
            for transform in transforms if merged else ():
                vectors = transform.apply(vectors)
            return piece, vectors, nearest(vectors) if nearest else None

        for piece, vectors, labels in self.threads.map(prepare, cut_rows(rows, self.passages.size)):
            if labels is None:
                index.add(vectors)
            else:
                ids = np.array(piece, np.int64)
                inner.add_core(
                    len(ids), *(faiss.swig_ptr(array) for array in (vectors, ids, labels))
                )
            progress.add(len(piece))
        if merged:
            index.ntotal = inner.ntotal

    def _find_nearest(self, quantizer: Any) -> Nearest:
        """Return the finder of lists; it runs on a CPU if the centroids, such as a graph of them, have no GPU form."""
        return Nearest(
            faiss.downcast_index(quantizer), self.gpu if has_gpu_form(quantizer) else NONE
        )

    def save(self, name: str, index: Any) -> None:
        """Write a finished index, from which a killed build continues."""
        self.pieces.write(name, lambda path: faiss.write_index(index, str(path)))

    def finish(self, folder: Path) -> int:
        """Join the parts in a folder, as one index if lists can be merged, else as one index per part; and `meta.json`.

        Parts' lists are mapped, not loaded, and merged into `lists.ivfdata`: memory does not grow with the corpus. The
        copies of all parts go into `copies.npy`, and are counted. The nodes, numbered on from part to part, are the
        rows without copies.
        """
        parts = [self.pieces.folder / name for name in self.parts]
        firsts = {INDEX_FILE: 0}
        copies = 0
        if is_merged(self.index):
            index = faiss.read_index(str(self.pieces.folder / _TRAINED_FILE))
            merge_ondisk(index, list(map(str, parts)), str(folder / INVERTED_LISTS_FILE))
            lists: Any = faiss.downcast_InvertedLists(split_chain(index)[1].invlists)
            lists.filename = INVERTED_LISTS_FILE  # relative, since the folder is renamed later
            faiss.write_index(index, str(folder / INDEX_FILE))
        else:
            names = [INDEX_FILE] if len(parts) == 1 else list(self.parts)
            firsts = {
                name: rows.start for name, rows in zip(names, self.parts.values(), strict=True)
            }
            for name, path in zip(names, parts, strict=True):
                # linked, so that a kill at any time does not lose a finished part
                link(path, folder / name)
            if find_graph(self.index) is not None:
                files = [self.pieces.folder / self.copies_name(name) for name in self.parts]
                pairs = [np.load(file, allow_pickle=False) for file in files]
                for name, own in zip(names, pairs, strict=True):
                    firsts[name] -= copies
                    copies += len(own)
                if copies:
                    save_array(folder / COPIES_FILE, np.concatenate(pairs))
        meta = {
            "rows": self.passages.rows,
            "dimension": self.passages.dimension,
            "factory": self.factory,
            "metric": "Hamming distance" if SIGN_INDEX in self.factory else "inner product",
            "params": plain(self.params),
            "indexes": [{"file": name, "first": first} for name, first in firsts.items()],
        }
        write_json(folder / "meta.json", meta)
        return copies


def encode_by(index: Any, graph: Any) -> Callable[[Floats], Array]:
    """Return a function to what an index stores of vectors: their codes in a graph of codes, else the vectors."""
    storage = faiss.downcast_index(graph.storage)
    transforms = split_chain(index)[0]
    if isinstance(storage, faiss.IndexFlat) or graph is not split_chain(index)[1]:
        # a graph of plain vectors, or one whose results exact vectors re-rank
        return lambda vectors: vectors + np.float32(0)  # -0 equals 0

    def encode(vectors: Floats) -> Array:
        for transform in transforms:
            vectors = transform.apply(vectors)
        codes: Array = storage.sa_encode(vectors)
        return codes

    return encode


def save_array(path: Path, array: Array) -> None:
    """Write an array in NumPy's format, under exactly this name."""
    with open(path, "wb") as file:
        np.save(file, array)


@contextmanager
def open_trained(job: Job[IndexParams]) -> Iterator[Build]:
    """Open the index of a job, trained; it computes within the context."""
    with open_threads(job.execution.workers) as threads:
        build = Build(job, threads)
        build.train()
        yield build


def train_shard(job: Job[IndexParams]) -> dict[str, object]:
    """Train the index before its shards fill it."""
    with open_trained(job) as build:
        return {"trained": build.pieces.origin}


def run_shard(job: Job[IndexParams]) -> dict[str, object]:
    """Fill every n-th part, beginning with this shard's number."""
    with open_trained(job) as build:
        numbers = range(len(build.parts))[job.execution.shard or 0 :: job.execution.shards]
        build.fill([*build.parts][number] for number in numbers)
        return {"parts": list(numbers)}


def run(job: Job[IndexParams]) -> None:
    """Train, fill what no shard has filled, put the parts together and write the manifest."""
    with open_trained(job) as build:
        build.fill(build.parts)
        with writing(job) as draft:
            with explain_errors(f"index: FAISS cannot put together {build.factory}"):
                copies = build.finish(draft.folder)
            size = sum(path.stat().st_size for path in draft.folder.iterdir())
            rows = build.passages.rows
            draft.facts |= {
                "passages": rows,
                "factory": build.factory,
                "bytes_per_vector": round(size / rows, 2),
            }
            draft.facts |= {"copies": copies} if copies else {}
    shutil.rmtree(build.pieces.folder)
