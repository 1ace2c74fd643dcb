"""Exact search by torch: vectors stream through a GPU, or a CPU, past the best passages of all queries so far.

Its result equals that of `faiss_search.py` to the last bit. It is there for GPUs: on a CPU, where it finds half as many
queries a second, it runs only where `execution.engine` is `torch`, to check what a GPU has found. No FAISS: their
OpenMPs share no process well.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tandem.cluster.work import ahead
from tandem.models.device import device, use_workers
from tandem.retrieval.embeddings import FP16, FP32, INT8, FloatVectors, StoredRows, Stretches
from tandem.retrieval.exact import (
    EXTRA_PROPOSALS,
    ROUNDING,
    SLACK_TERMS,
    Array,
    bound_difference,
    score_pairs,
    score_rows,
)

_VALUE_TYPES = {FP32: torch.float32, FP16: torch.float16, INT8: torch.int8}  # as they are stored
_PASSAGES_PER_SEGMENT = 64  # passages of which first the best alone is looked at
NO_PASSAGE = -(1 << 63)  # no passage
_LOW_HALF = 0xFFFFFFFF
# Tensor cores align the terms of a sum and cut off what does not fit: an error of up to two units where rounding makes
# half of one (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores", §3).
_CUT_OFF = 4 * ROUNDING

_StretchTensors = dict[str, Tensor]  # of a stretch: `values`, `ranks`, and of int8 `scale`


class Stretch:
    """A stretch of passages on the device: fp32, fp16 or int8 values, (passages, dim), with the scale of int8.

    `factor` is what is multiplied: on CUDA fp16 and int8 as fp16, which sums in float32; else the vectors as float32.
    `longest` is an upper bound of the vectors' lengths.
    """

    def __init__(self, values: Tensor, ranks: Tensor, scale: Tensor | None = None) -> None:
        self.ranks = ranks
        if values.is_cuda and values.dtype != torch.float32:  # fp16 holds int8 too
            self.factor, self.scale = values.half(), scale
        else:
            self.factor, self.scale = values.float() if scale is None else values * scale[:, None], None
        lengths = torch.linalg.vector_norm(self.factor, dim=1, dtype=torch.float32)
        lengths = lengths if self.scale is None else lengths * self.scale
        self.longest = 1.001 * lengths.max().double()  # a float32 sum may be low by less than a thousandth

    def products(self, queries: Tensor) -> Tensor:
        """q · p in float32, shape (queries, passages); queries have the type of `factor`."""
        if self.factor.dtype == torch.float16:
            products = torch.mm(queries, self.factor.T, out_dtype=torch.float32)
        else:
            products = torch.mm(queries, self.factor.T)
        return products if self.scale is None else products * self.scale

    def exact(self, rows: Tensor) -> Tensor:
        """Vectors in float64, shape (rows, dim)."""
        vectors = self.factor[rows].double()
        return vectors if self.scale is None else vectors * self.scale[rows, None].double()


class Buffer:
    """Host memory of a stretch of at most `rows` rows; `pinned`: page-locked, to be copied to a GPU from."""

    def __init__(self, rows: int, dimension: int, dtype: str, pinned: bool) -> None:
        kinds = {"values": _VALUE_TYPES[dtype]} | ({"scale": torch.float32} if dtype == INT8 else {})
        shapes = {"values": (rows, dimension)}
        self.parts = {
            name: torch.empty(shapes.get(name, (rows,)), dtype=kind, pin_memory=pinned)
            for name, kind in (kinds | {"ranks": torch.int64}).items()
        }

    def fill(self, pieces: StoredRows, ranks: Array) -> _StretchTensors:
        """Read a stretch; views of this buffer."""
        start = 0
        for piece in pieces:
            at = slice(start, start + len(piece))
            for name in piece.dtype.names or ("values",):
                self.parts[name].numpy()[at] = piece[name] if piece.dtype.names else piece
            start = at.stop
        self.parts["ranks"].numpy()[:start] = ranks
        return {name: part[:start] for name, part in self.parts.items()}


def _stream_stretches(passages: Stretches, rows: int, where: torch.device) -> Iterator[Stretch]:
    """Stretches of at most `rows` rows on the device: a thread reads the next one while one is searched.

    Two buffers take turns. To a GPU they are copied on a stream of their own, while the caller's stream computes.
    """
    dtype, cuda = passages.embeddings.dtype, where.type == "cuda"
    buffers = [Buffer(min(rows, passages.rows), passages.dimension, dtype, pinned=cuda) for _ in range(2)]
    sending, sent = torch.cuda.Stream(where) if cuda else None, dict[int, torch.cuda.Event]()

    def read() -> Iterator[tuple[_StretchTensors, torch.cuda.Event | None]]:
        """Stretches, and where they are copied the event of the copy's end."""
        for number, stretch in enumerate(passages.read(rows)):
            turn = number % 2
            if turn in sent:
                sent[turn].synchronize()  # the copy out of this buffer
            parts = buffers[turn].fill(*stretch)
            if sending is not None:
                with torch.cuda.stream(sending):
                    parts = {name: part.to(where, non_blocking=True) for name, part in parts.items()}
                    sent[turn] = sending.record_event()
            yield parts, sent.get(turn)

    with ahead(read()) as coming:
        for parts, copied in coming:
            if copied is not None:
                current = torch.cuda.current_stream(where)
                current.wait_event(copied)
                for part in parts.values():
                    part.record_stream(current)  # its memory is not reused before this stream is done with it
            yield Stretch(**parts)


def pack_signed_keys(scores: Tensor, ranks: Tensor) -> Tensor:
    """`exact.pack` as int64: the same bits but for the highest, so that signed comparison orders them."""
    bits = (scores + 0.0).view(torch.int32)  # + 0 turns -0 into 0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    return (ordered << 32) | (_LOW_HALF - ranks)


def floors(keys: Tensor) -> Tensor:
    """Return the score that a passage must reach, as `BestPassages.floors`, float64."""
    lowest = keys.amin(dim=1)
    ordered = (lowest >> 32).int()
    scores = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32).double()
    return torch.where(lowest == NO_PASSAGE, -torch.inf, scores)


class StretchSearch:
    """The best passages of some queries so far, on the device; `tile` products are held at once."""

    def __init__(self, queries: FloatVectors, depth: int, temperature: float, tile: int) -> None:
        self.stored, self.depth, self.temperature, self.tile = queries, depth, temperature, tile
        where = device()
        self.queries = torch.from_numpy(np.ascontiguousarray(queries)).to(where)
        self.lengths = torch.linalg.vector_norm(self.queries.double(), dim=1)
        self.factor = self.queries if where.type == "cuda" else self.queries.float()
        self.unit = _CUT_OFF if where.type == "cuda" else ROUNDING
        self.keys = torch.full((len(queries), depth), NO_PASSAGE, dtype=torch.int64, device=where)

    def add(self, stretch: Stretch) -> None:
        """Search a stretch of passages."""
        batch = max(1, self.tile // len(stretch.ranks))
        for first in range(0, len(self.keys), batch):
            self._tile(slice(first, min(first + batch, len(self.keys))), stretch)

    def _tile(self, at: slice, stretch: Stretch) -> None:
        """Search for a batch of queries; where many passages are near the cut, for fewer queries at a time."""
        products = stretch.products(self.factor[at])
        tail = -products.shape[1] % _PASSAGES_PER_SEGMENT
        segments = torch.nn.functional.pad(products, (0, tail), value=-torch.inf) if tail else products
        segments = segments.view(len(products), -1, _PASSAGES_PER_SEGMENT)
        cut = self._cut(at, products, stretch)
        peaks = segments.amax(dim=2) >= cut[:, None]
        near = int(peaks.sum()) * _PASSAGES_PER_SEGMENT
        share = max(1, len(products) * self.tile // max(1, 8 * near))
        for start in range(0, len(products), share):
            part = slice(start, min(start + share, len(products)))
            here = slice(at.start + part.start, at.start + part.stop)
            self._merge(here, *_reaching(segments[part], peaks[part], cut[part]), stretch)

    def _cut(self, at: slice, products: Tensor, stretch: Stretch) -> Tensor:
        """What a product must reach for its passage to be looked at, float32, shape (queries,)."""
        error = (self.queries.shape[1] + SLACK_TERMS) * self.unit * self.lengths[at] * stretch.longest
        lowest = floors(self.keys[at]) * self.temperature
        if bool(torch.isinf(lowest).any()):  # the first stretches: its own best set the cut
            count = min(self.depth, products.shape[1])
            lowest = torch.maximum(lowest, products.topk(count, dim=1).values[:, -1].double())
        return torch.nextafter((lowest - 2 * error).float(), torch.tensor(-torch.inf, device=products.device))

    def _merge(self, at: slice, query: Tensor, row: Tensor, stretch: Stretch) -> None:
        if not len(query):
            return
        scores = self._scores(query + at.start, row, stretch)
        keys = pack_signed_keys(scores, stretch.ranks[row])
        counts = torch.bincount(query, minlength=at.stop - at.start)
        column = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        wide = keys.new_full((at.stop - at.start, int(counts.max())), NO_PASSAGE)
        wide[query, column] = keys
        self.keys[at] = torch.cat([self.keys[at], wide], dim=1).topk(self.depth, dim=1).values

    def _scores(self, query: Tensor, row: Tensor, stretch: Stretch) -> Tensor:
        """Scores of pairs, those of a query together, float32, equal to those of `score_pairs`."""
        if not query.is_cuda:
            return self._scores_by_threads(query.numpy(), row.numpy(), stretch)
        chunk = max(1, self.tile // 8 // self.queries.shape[1])
        pieces = zip(query.split(chunk), row.split(chunk), strict=True)
        return torch.cat([self._scores_on_device(q, r, stretch) for q, r in pieces])

    def _scores_on_device(self, query: Tensor, row: Tensor, stretch: Stretch) -> Tensor:
        """Scores of pairs, as `_scores` gives them, by the device that holds the vectors; see `exact.settled`."""
        sums = (self.queries[query].double() * stretch.exact(row)).sum(dim=1)
        width: Tensor = bound_difference(self.queries.shape[1], self.lengths[query] * stretch.longest)
        low, high = (((sums + end) / self.temperature).float() for end in (-width, width))
        close = (low != high).nonzero()[:, 0]
        if len(close):
            q, r = query[close].cpu().numpy(), stretch.exact(row[close]).cpu().numpy()
            low[close] = torch.from_numpy(score_pairs(self.stored[q], r, self.temperature)).to(low.device)
        return low

    def _scores_by_threads(self, query: Array, row: Array, stretch: Stretch) -> Tensor:
        """Scores of pairs, as `_scores` gives them, by threads that work alone.

        torch's threads wait for one another after each of many small steps.
        """
        scores, vectors, longest = np.empty(len(row), np.float32), stretch.factor.numpy(), float(stretch.longest)
        edges = np.append(np.flatnonzero(np.diff(query, prepend=-1)), len(query))

        def decide(at: slice) -> None:
            scores[at] = score_rows(self.stored[query[at.start]], vectors, row[at], longest, self.temperature)

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(decide, map(slice, edges[:-1], edges[1:])))
        return torch.from_numpy(scores)

    def best(self) -> Array:
        """Packed as by `exact.pack`, shape (queries, depth); 0 for none."""
        return self.keys.cpu().numpy().view(np.uint64) ^ np.uint64(1 << 63)


def _reaching(segments: Tensor, peaks: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs whose product reaches the cut, (queries,): queries, ascending, and passages.

    `segments` are products, (queries, segments, `_PASSAGES_PER_SEGMENT`); `peaks` tells which hold such a product.
    """
    query, segment = peaks.nonzero(as_tuple=True)
    hit, inside = (segments[query, segment] >= cut[query, None]).nonzero(as_tuple=True)
    return query[hit], segment[hit] * _PASSAGES_PER_SEGMENT + inside


@torch.inference_mode()
def search_by_torch(queries: FloatVectors, passages: Stretches, depth: int, memory: int, workers: int | None) -> Array:
    """The best `depth` passages of each query; arguments and result as of `faiss_search.search`."""
    use_workers(workers)
    # Not TF32, though `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE` allow it, as in NVIDIA's images: the bounds are of float32.
    torch.set_float32_matmul_precision("highest")
    where = device()
    # A proposal costs 8 bytes in float32 and as padded segments, those near the cut an eighth of it several times over.
    tile = max(_PASSAGES_PER_SEGMENT, memory // 3 // 16)
    # Of a number: two stretches as they are stored, and on a CPU one of fp16 or int8 as float32.
    wide = where.type != "cuda" or passages.embeddings.dtype == FP32
    rows = memory * 2 // 3 // ((8 if wide else 4) * passages.dimension + 24)
    rows = max(1, min(rows, tile // min(len(queries), depth + EXTRA_PROPOSALS)))
    best = StretchSearch(queries, depth, passages.temperature, tile)
    for stretch in _stream_stretches(passages, rows, where):
        best.add(stretch)
    return best.best()
