"""Exact search by torch: vectors stream through a GPU, or a CPU, which keeps the best passages of all queries so far.

The result equals that of `retrieval/faiss_search.py` to the last bit. The engine is meant for GPUs. On a CPU, it
searches for half as many queries per second as FAISS, and runs only if `execution.engine` is `torch`, to check the
result of a GPU. It does not import FAISS, since the OpenMP libraries of the two do not share a process well.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from importlib.util import find_spec
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from tandem.cluster.work import prefetch_items
from tandem.config.retrieval import search_engine
from tandem.models.device import can_compile, device, use_workers
from tandem.retrieval.embeddings import FP16, FP32, INT8, FloatVectors, StoredRows, Stretches
from tandem.retrieval.exact import (
    EXTRA_PROPOSALS,
    FLOAT32_ROUNDING,
    SLACK_TERMS,
    Array,
    SearchEngine,
    bound_difference,
    score_rows,
    score_vector_pairs,
)

NO_PASSAGE = -(1 << 63)  # the least int64: the signed key of an empty place
_VALUE_TYPES = {FP32: torch.float32, FP16: torch.float16, INT8: torch.int8}  # as they are stored
_PASSAGES_PER_SEGMENT = 64  # passages of which only the best is compared with the cut at first
_READERS = 8  # threads that copy stored vectors: a GPU searches faster than one of them copies
# Bytes of a buffer that is copied to a GPU; each reader has one. To lock a GiB in memory takes most of a second.
_PINNED = 16 << 20
# bytes of the products of pairs that are summed at once, without the kernel
_PAIR_BYTES = 256 << 20
# By default, a search takes the GPU's memory divided by this number.
_SHARE_OF_DEVICE = 3
_LOW_HALF = 0xFFFFFFFF
_ALL_BUT_SIGN = 0x7FFFFFFF
# Tensor cores align the terms of a sum and cut off the bits that do not fit: the error is up to two units, while that
# of rounding is half a unit (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores", §3).
_CUT_OFF = 4 * FLOAT32_ROUNDING

_StretchTensors = dict[str, Tensor]  # of a stretch: `values`, `ranks`, and `scale` for int8


class Stretch:
    """A stretch of passages on the device: fp32, fp16 or int8 values, (passages, dim), with the scale of int8.

    `factor` are the vectors that are multiplied. On CUDA, fp16 and int8 are multiplied as fp16 and summed in float32;
    otherwise, the vectors are float32. `longest` is an upper bound of the vectors' lengths.
    """

    def __init__(self, values: Tensor, ranks: Tensor, scale: Tensor | None = None) -> None:
        self.ranks = ranks
        self.scale: Tensor | None = None
        if values.is_cuda and values.dtype != torch.float32:
            self.factor = values.half()  # fp16 holds every int8, too
            self.scale = scale
        elif scale is None:
            self.factor = values.float()
        else:
            self.factor = values * scale[:, None]

        lengths = torch.linalg.vector_norm(self.factor, dim=1, dtype=torch.float32)
        if self.scale is not None:
            lengths = lengths * self.scale
        # a float32 sum may be too low, by less than a thousandth
        self.longest = 1.001 * lengths.max().double()

    def select(self, rows: slice) -> "Stretch":
        """Return a stretch of some of the passages, without copying them."""
        part = copy(self)
        part.factor = self.factor[rows]
        part.ranks = self.ranks[rows]
        part.scale = None if self.scale is None else self.scale[rows]
        return part

    def multiply(self, queries: Tensor) -> Tensor:
        """Return q · p in float32, shape (queries, passages); queries have the type of `factor`."""
        if self.factor.dtype == torch.float16:
            products = torch.mm(queries, self.factor.T, out_dtype=torch.float32)
        else:
            products = torch.mm(queries, self.factor.T)
        return products if self.scale is None else products * self.scale

    def widen(self, rows: Tensor) -> Tensor:
        """Return the vectors of some rows in float64, shape (rows, dim)."""
        vectors = self.factor[rows].double()
        if self.scale is None:
            return vectors
        return vectors * self.scale[rows, None].double()


def _name_columns(rows: Array) -> Iterator[tuple[str, Array]]:
    """Yield the columns of stored rows: `values`, and `scale` for int8."""
    if rows.dtype.names is None:
        yield "values", rows
        return
    for name in rows.dtype.names:
        yield name, rows[name]


class Lane:
    """Copy stored rows to a GPU through page-locked memory of its own, on a stream that all lanes share."""

    def __init__(self, rows: int, dimension: int, dtype: str, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.rows = rows
        self.locked = {
            "values": torch.empty((rows, dimension), dtype=_VALUE_TYPES[dtype], pin_memory=True)
        }
        if dtype == INT8:
            self.locked["scale"] = torch.empty((rows,), dtype=torch.float32, pin_memory=True)
        self.copied: torch.cuda.Event | None = None  # the end of the last copy from this memory

    def send(self, rows: Array, parts: _StretchTensors, first: int) -> None:
        """Copy rows to `parts`, from row `first` on, without waiting for the copy to the GPU."""
        for start in range(0, len(rows), self.rows):
            own = rows[start : start + self.rows]
            if self.copied is not None:
                self.copied.synchronize()
            for name, column in _name_columns(own):
                self.locked[name].numpy()[: len(own)] = column
            there = slice(first + start, first + start + len(own))
            with torch.cuda.stream(self.stream):
                for name, _ in _name_columns(own):
                    parts[name][there].copy_(self.locked[name][: len(own)], non_blocking=True)
                self.copied = self.stream.record_event()


class Loader:
    """Copy stretches of stored vectors to the device that searches them; several threads copy a piece each."""

    def __init__(self, passages: Stretches, target: torch.device) -> None:
        self.passages = passages
        self.dtype = passages.embeddings.dtype
        self.target = target
        self.readers = ThreadPoolExecutor(_READERS)
        self.stream = torch.cuda.Stream(target) if target.type == "cuda" else None
        self.lanes: SimpleQueue[Lane] = SimpleQueue()
        if self.stream is not None:
            rows = max(1, _PINNED // passages.embeddings.kind.itemsize)
            for _ in range(_READERS):
                self.lanes.put(Lane(rows, passages.dimension, self.dtype, self.stream))

    def load(
        self, pieces: StoredRows, ranks: Array
    ) -> tuple[_StretchTensors, torch.cuda.Event | None]:
        """Return a stretch on the device and, for a GPU, the event at which its copy is complete."""
        with torch.cuda.stream(self.stream):
            parts = self._allocate(len(ranks))
            parts["ranks"].copy_(torch.from_numpy(ranks.astype(np.int64)))
        ends = np.cumsum([len(piece) for piece in pieces])
        starts = ends - [len(piece) for piece in pieces]
        list(
            self.readers.map(
                lambda piece, start: self._copy(piece, parts, start), pieces, starts.tolist()
            )
        )
        return parts, self.stream.record_event() if self.stream is not None else None

    def _allocate(self, rows: int) -> _StretchTensors:
        parts = {
            "values": torch.empty(
                (rows, self.passages.dimension), dtype=_VALUE_TYPES[self.dtype], device=self.target
            ),
            "ranks": torch.empty((rows,), dtype=torch.int64, device=self.target),
        }
        if self.dtype == INT8:
            parts["scale"] = torch.empty((rows,), dtype=torch.float32, device=self.target)
        return parts

    def _copy(self, piece: Array, parts: _StretchTensors, start: int) -> None:
        if self.stream is None:
            for name, column in _name_columns(piece):
                parts[name].numpy()[start : start + len(piece)] = column
            return
        lane = self.lanes.get()
        try:
            lane.send(piece, parts, start)
        finally:
            self.lanes.put(lane)


def _stream_stretches(passages: Stretches, rows: int, target: torch.device) -> Iterator[Stretch]:
    """Yield stretches of at most `rows` rows on the device; a thread reads the next one while one is searched.

    Copies to a GPU run on a stream of their own, while the caller's stream computes.
    """
    loader = Loader(passages, target)
    with (
        loader.readers,
        prefetch_items(loader.load(*stretch) for stretch in passages.read(rows)) as coming,
    ):
        for parts, arrival in coming:
            if arrival is not None:
                current = torch.cuda.current_stream(target)
                current.wait_event(arrival)
                for part in parts.values():
                    # its memory is not reused before this stream is done with it
                    part.record_stream(current)
            yield Stretch(**parts)


def pack_signed_keys(scores: Tensor, ranks: Tensor) -> Tensor:
    """Return `exact.pack_keys` as int64, with the highest bit flipped, so that signed comparison orders the keys."""
    bits = (scores + 0.0).view(torch.int32)  # + 0 turns -0 into 0
    ordered = torch.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits).long()
    return (ordered << 32) | (_LOW_HALF - ranks)


def find_floors(keys: Tensor) -> Tensor:
    """Return the score that a passage must reach to be kept, like `BestPassages.find_floors`, float64."""
    lowest = keys.amin(dim=1)
    ordered = (lowest >> 32).int()
    bits = torch.where(ordered < 0, ordered ^ _ALL_BUT_SIGN, ordered)
    scores = bits.view(torch.float32).double()
    return torch.where(lowest == NO_PASSAGE, -torch.inf, scores)


class StretchSearch:
    """The best passages of some queries so far, on the device; at most `tile` products are in memory at once."""

    def __init__(self, queries: FloatVectors, depth: int, temperature: float, tile: int) -> None:
        self.stored = queries
        self.depth = depth
        self.temperature = temperature
        self.tile = tile
        target = device()
        is_cuda = target.type == "cuda"
        self.queries = torch.from_numpy(np.ascontiguousarray(queries)).to(target)
        self.lengths = torch.linalg.vector_norm(self.queries.double(), dim=1)
        self.factor = self.queries if is_cuda else self.queries.float()
        self.unit = _CUT_OFF if is_cuda else FLOAT32_ROUNDING
        self.has_kernel = is_cuda and find_spec("triton") is not None and can_compile()
        self.keys = torch.full((len(queries), depth), NO_PASSAGE, dtype=torch.int64, device=target)

    def add(self, stretch: Stretch) -> None:
        """Search a stretch of passages: first its whole segments, and then the rest.

        A GPU multiplies matrices of odd shapes at a fifth of its speed.
        """
        whole = len(stretch.ranks) // _PASSAGES_PER_SEGMENT * _PASSAGES_PER_SEGMENT
        for rows in (slice(0, whole), slice(whole, len(stretch.ranks))):
            if rows.start < rows.stop:
                self._add_rows(stretch.select(rows))

    def _add_rows(self, stretch: Stretch) -> None:
        batch = max(1, self.tile // len(stretch.ranks))
        for first in range(0, len(self.keys), batch):
            stop = min(first + batch, len(self.keys))
            self._search_tile(slice(first, stop), stretch)

    def _search_tile(self, batch: slice, stretch: Stretch) -> None:
        """Search for a batch of queries; if many passages are near the cut, for fewer queries at a time."""
        products = stretch.multiply(self.factor[batch])
        cut = self._find_cut(batch, products, stretch)

        missing = -products.shape[1] % _PASSAGES_PER_SEGMENT  # passages that the last segment lacks
        padded = (
            torch.nn.functional.pad(products, (0, missing), value=-torch.inf)
            if missing
            else products
        )
        # A segment's passages are not adjacent: with adjacent ones, a GPU would find the best a fourth as fast.
        segments = padded.view(len(products), _PASSAGES_PER_SEGMENT, -1)
        is_near = segments.amax(dim=1) >= cut[:, None]

        # Pairs near the cut need several times the memory of their products; they are at most an eighth of the tile.
        near = int(is_near.sum()) * _PASSAGES_PER_SEGMENT
        share = max(1, len(products) * self.tile // max(1, 8 * near))
        for start in range(0, len(products), share):
            part = slice(start, min(start + share, len(products)))
            queries = slice(batch.start + part.start, batch.start + part.stop)
            pairs = _find_reaching(segments[part], is_near[part], cut[part])
            self._merge(queries, *pairs, stretch)

    def _find_cut(self, batch: slice, products: Tensor, stretch: Stretch) -> Tensor:
        """Return the product that a passage must reach to be scored, float32, shape (queries,)."""
        dimension = self.queries.shape[1]
        error = (dimension + SLACK_TERMS) * self.unit * self.lengths[batch] * stretch.longest
        lowest = find_floors(self.keys[batch]) * self.temperature
        if bool(torch.isinf(lowest).any()):  # in the first stretches, their own best set the cut
            count = min(self.depth, products.shape[1])
            last_of_best = products.topk(count, dim=1).values[:, -1]
            lowest = torch.maximum(lowest, last_of_best.double())
        downwards = torch.tensor(-torch.inf, device=products.device)
        return torch.nextafter((lowest - 2 * error).float(), downwards)

    def _merge(self, queries: slice, query: Tensor, row: Tensor, stretch: Stretch) -> None:
        """Score pairs of `queries` (numbered from its start) and passages, and keep the best of each query."""
        if not len(query):
            return
        scores = self._score(query + queries.start, row, stretch)
        keys = pack_signed_keys(scores, stretch.ranks[row])

        # The pairs of a query are consecutive; a pair's column is its position among the pairs of its query.
        count = queries.stop - queries.start
        pairs_per_query = torch.bincount(query, minlength=count)
        begins = pairs_per_query.cumsum(0) - pairs_per_query
        column = torch.arange(len(query), device=query.device) - begins[query]
        candidates = keys.new_full((count, int(pairs_per_query.max())), NO_PASSAGE)
        candidates[query, column] = keys

        merged = torch.cat([self.keys[queries], candidates], dim=1)
        self.keys[queries] = merged.topk(self.depth, dim=1).values

    def _score(self, query: Tensor, row: Tensor, stretch: Stretch) -> Tensor:
        """Return the scores of pairs, float32, equal to `score_vector_pairs`; a query's pairs are consecutive."""
        if not query.is_cuda:
            return self._score_by_threads(query.numpy(), row.numpy(), stretch)
        return self._score_on_device(query, row, stretch)

    def _score_on_device(self, query: Tensor, row: Tensor, stretch: Stretch) -> Tensor:
        """Return the result of `_score`, computed on the device that holds the vectors; see `exact.round_and_flag`."""
        sums = self._sum_products(query, row, stretch)
        width: Tensor = bound_difference(
            self.queries.shape[1], self.lengths[query] * stretch.longest
        )
        low = ((sums - width) / self.temperature).float()
        high = ((sums + width) / self.temperature).float()

        close = (low != high).nonzero()[:, 0]
        if len(close):
            queries = self.stored[query[close].cpu().numpy()]
            passages = stretch.widen(row[close]).cpu().numpy()
            scores = score_vector_pairs(queries, passages, self.temperature)
            low[close] = torch.from_numpy(scores).to(low.device)
        return low

    def _sum_products(self, query: Tensor, row: Tensor, stretch: Stretch) -> Tensor:
        """Return q · p of pairs, summed in float64, shape (pairs,)."""
        if self.has_kernel:
            from tandem.contrib.gpu_search.pair_kernel import sum_products

            sums = sum_products(self.queries, stretch.factor, query, row)
        else:
            chunk = max(1, _PAIR_BYTES // 8 // self.queries.shape[1])
            parts = zip(query.split(chunk), row.split(chunk), strict=True)
            products = ((self.queries[q].double() * stretch.factor[p]).sum(1) for q, p in parts)
            sums = torch.cat(list(products))
        return sums if stretch.scale is None else sums * stretch.scale[row]

    def _score_by_threads(self, query: Array, row: Array, stretch: Stretch) -> Tensor:
        """Return the result of `_score`, computed by threads that work independently.

        torch's own threads would wait for one another after each of many small steps.
        """
        scores = np.empty(len(row), np.float32)
        vectors = stretch.factor.numpy()
        longest = float(stretch.longest)

        def score(pairs: slice) -> None:
            """Score the pairs of one query."""
            vector = self.stored[query[pairs.start]]
            scores[pairs] = score_rows(vector, vectors, row[pairs], longest, self.temperature)

        is_first = np.diff(query, prepend=-1)
        bounds = np.append(np.flatnonzero(is_first), len(query))
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(score, map(slice, bounds[:-1], bounds[1:])))
        return torch.from_numpy(scores)

    def export_keys(self) -> Array:
        """Return the best passages packed as by `exact.pack_keys`, shape (queries, depth); 0 is an empty place."""
        # only the sign bit differs
        return self.keys.cpu().numpy().view(np.uint64) ^ np.uint64(1 << 63)


def _find_reaching(segments: Tensor, is_near: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pairs whose product reaches the cut, as arrays of queries, ascending, and passages.

    `segments` are products, (queries, `_PASSAGES_PER_SEGMENT`, segments). `is_near` is True for segments that contain
    such a product, (queries, segments). `cut` has the shape (queries,).
    """
    query, segment = is_near.nonzero(as_tuple=True)
    reaches = segments[query, :, segment] >= cut[query, None]
    hit, inside = reaches.nonzero(as_tuple=True)
    return query[hit], inside * segments.shape[2] + segment[hit]


def count_default_memory() -> int:
    """Return the bytes that a search takes by default: a share of a GPU's memory, or 0 without a GPU."""
    target = device()
    if target.type != "cuda":
        return 0
    return torch.cuda.get_device_properties(target).total_memory // _SHARE_OF_DEVICE


@search_engine("torch")
def open_torch_engine() -> SearchEngine:
    """Return the engine that searches on a GPU, or on a CPU with the same result."""
    return SearchEngine(search_by_torch, count_default_memory())


@torch.inference_mode()
def search_by_torch(
    queries: FloatVectors, passages: Stretches, depth: int, memory: int, workers: int | None
) -> Array:
    """Return the best `depth` passages of each query; arguments and result are those of `search_by_faiss`."""
    use_workers(workers)
    # No TF32, even if `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE` allows it, as in NVIDIA's images: the bounds hold for float32.
    torch.set_float32_matmul_precision("highest")
    target = device()

    # A product takes 8 bytes, in float32 and again in padded segments. Those near the cut, at most an eighth, take
    # several times as much.
    tile = max(_PASSAGES_PER_SEGMENT, memory // 3 // 16)
    # A number is in memory in two stretches as stored and, on a CPU, for fp16 or int8 also in one as float32.
    is_wide = target.type != "cuda" or passages.embeddings.dtype == FP32
    bytes_per_number = 8 if is_wide else 4
    rows = memory * 2 // 3 // (bytes_per_number * passages.dimension + 24)
    rows = max(1, min(rows, tile // min(len(queries), depth + EXTRA_PROPOSALS)))
    if rows > _PASSAGES_PER_SEGMENT:
        # otherwise all products would be copied, to fill up the last segment
        rows -= rows % _PASSAGES_PER_SEGMENT

    search = StretchSearch(queries, depth, passages.temperature, tile)
    for stretch in _stream_stretches(passages, rows, target):
        search.add(stretch)
    return search.export_keys()
