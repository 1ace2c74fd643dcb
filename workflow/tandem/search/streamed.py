"""Exact search by torch: vectors stream through a GPU, or a CPU, past the best passages of all queries so far.

Products of stored vectors in float32 propose; sums in float64 on the same device decide, and the few whose rounding is
close are left to `exact.py`, so that the result is the one of `flat.py` to the last bit. No FAISS here: its OpenMP and
torch's do not share a process well.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tandem.models.device import device, use_workers
from tandem.search.blocks import Vectors
from tandem.search.exact import EXTRA, ROUNDING, SLACK, Array, pair_scores, query_scores, spread
from tandem.search.fed import Held, fed
from tandem.search.stretches import Stretches

SEGMENT = 64  # passages of which first the best alone is looked at
LOWEST = -(1 << 63)  # no passage
LOW = 0xFFFFFFFF
# Tensor cores align the terms of a sum and cut off what does not fit: an error of up to two units where rounding makes
# half of one (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores", §3).
CUT_OFF = 4 * ROUNDING


def pack(scores: Tensor, ranks: Tensor) -> Tensor:
    """`exact.pack` as int64: the same bits but for the highest, so that signed comparison orders them."""
    bits = (scores + 0.0).view(torch.int32)  # + 0 turns -0 into 0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    return (ordered << 32) | (LOW - ranks)


def floors(keys: Tensor) -> Tensor:
    """The score a passage must reach to matter, float64: -inf where there are fewer than the depth; see `Best`."""
    lowest = keys.amin(dim=1)
    ordered = (lowest >> 32).int()
    scores = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32).double()
    return torch.where(lowest == LOWEST, -torch.inf, scores)


class Search:
    """The best passages of some queries so far, on the device.

    Args:
        queries: fp16, shape (queries, dim).
        depth: passages a query.
        temperature: scores are divided by it.
        tile: products of a query and a passage that are held at once.
    """

    def __init__(self, queries: Vectors, depth: int, temperature: float, tile: int) -> None:
        self.stored, self.depth, self.temperature, self.tile = queries, depth, temperature, tile
        where = device()
        self.half = torch.from_numpy(np.ascontiguousarray(queries)).to(where)
        self.lengths = torch.linalg.vector_norm(self.half.double(), dim=1)
        self.asked = self.half if where.type == "cuda" else self.half.float()
        self.unit = CUT_OFF if where.type == "cuda" else ROUNDING
        self.keys = torch.full((len(queries), depth), LOWEST, dtype=torch.int64, device=where)

    def add(self, held: Held) -> None:
        """Search a stretch of passages."""
        batch = max(1, self.tile // len(held.ranks))
        for first in range(0, len(self.keys), batch):
            self._tile(slice(first, min(first + batch, len(self.keys))), held)

    def _tile(self, at: slice, held: Held) -> None:
        """Search for a batch of queries; where many passages are near the cut, for fewer queries at a time."""
        products = held.products(self.asked[at])
        tail = -products.shape[1] % SEGMENT
        segments = torch.nn.functional.pad(products, (0, tail), value=-torch.inf) if tail else products
        segments = segments.view(len(products), -1, SEGMENT)
        cut = self._cut(at, products, held)
        peaks = segments.amax(dim=2) >= cut[:, None]
        found = int(peaks.sum()) * SEGMENT
        share = max(1, len(products) * self.tile // max(1, 8 * found))
        for start in range(0, len(products), share):
            part = slice(start, min(start + share, len(products)))
            here = slice(at.start + part.start, at.start + part.stop)
            self._keep(here, *_reaching(segments[part], peaks[part], cut[part]), held)

    def _cut(self, at: slice, products: Tensor, held: Held) -> Tensor:
        """What a product must reach for its passage to be looked at, float32, shape (queries,)."""
        error = (self.half.shape[1] + SLACK) * self.unit * self.lengths[at] * held.longest
        lowest = floors(self.keys[at]) * self.temperature
        if bool(torch.isinf(lowest).any()):  # the first stretches: its own best set the cut
            count = min(self.depth, products.shape[1])
            lowest = torch.maximum(lowest, products.topk(count, dim=1).values[:, -1].double())
        return torch.nextafter((lowest - 2 * error).float(), torch.tensor(-torch.inf, device=products.device))

    def _keep(self, at: slice, query: Tensor, row: Tensor, held: Held) -> None:
        """Merge pairs, those of a query together, into the best so far."""
        if not len(query):
            return
        scores = self._scores(query + at.start, row, held)
        keys = pack(scores, held.ranks[row])
        counts = torch.bincount(query, minlength=at.stop - at.start)
        column = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        wide = keys.new_full((at.stop - at.start, int(counts.max())), LOWEST)
        wide[query, column] = keys
        self.keys[at] = torch.cat([self.keys[at], wide], dim=1).topk(self.depth, dim=1).values

    def _scores(self, query: Tensor, row: Tensor, held: Held) -> Tensor:
        """Scores of pairs, those of a query together, float32, as `pair_scores` has them."""
        if not query.is_cuda:
            return self._decided(query.numpy(), row.numpy(), held)
        chunk = max(1, self.tile // 8 // self.half.shape[1])
        return torch.cat([self._settled(q, r, held) for q, r in zip(query.split(chunk), row.split(chunk), strict=True)])

    def _settled(self, query: Tensor, row: Tensor, held: Held) -> Tensor:
        """The same by the device that holds the vectors; see `exact.settled`."""
        sums = (self.half[query].double() * held.exact(row)).sum(dim=1)
        width: Tensor = spread(self.half.shape[1], self.lengths[query] * held.longest)
        low, high = (((sums + end) / self.temperature).float() for end in (-width, width))
        close = (low != high).nonzero()[:, 0]
        if len(close):
            q, r = query[close].cpu().numpy(), held.exact(row[close]).cpu().numpy()
            low[close] = torch.from_numpy(pair_scores(self.stored[q], r, self.temperature)).to(low.device)
        return low

    def _decided(self, query: Array, row: Array, held: Held) -> Tensor:
        """The same by threads that work alone: torch's wait for one another after each of many small steps."""
        made, vectors, longest = np.empty(len(row), np.float32), held.factor.numpy(), float(held.longest)
        edges = np.append(np.flatnonzero(np.diff(query, prepend=-1)), len(query))

        def decide(at: slice) -> None:
            """One query's."""
            made[at] = query_scores(self.stored[query[at.start]], vectors, row[at], longest, self.temperature)

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(decide, map(slice, edges[:-1], edges[1:])))
        return torch.from_numpy(made)

    def best(self) -> Array:
        """Packed as in `exact.pack`, shape (queries, depth); 0 where there is none."""
        return self.keys.cpu().numpy().view(np.uint64) ^ np.uint64(1 << 63)


def _reaching(segments: Tensor, peaks: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs whose product reaches the cut: queries, ascending, and passages.

    Args:
        segments: products, shape (queries, segments, `SEGMENT`).
        peaks: whether a segment holds such a one, shape (queries, segments).
        cut: shape (queries,).
    """
    query, segment = peaks.nonzero(as_tuple=True)
    hit, inside = (segments[query, segment] >= cut[query, None]).nonzero(as_tuple=True)
    return query[hit], segment[hit] * SEGMENT + inside


@torch.inference_mode()
def search(queries: Vectors, passages: Stretches, depth: int, memory: int, workers: int | None) -> Array:
    """The best `depth` passages of each query; arguments and result as in `flat.search`."""
    use_workers(workers)
    where = device()
    # A proposal costs 8 bytes in float32 and as padded segments, those near the cut an eighth of it several times over.
    tile = max(SEGMENT, memory // 3 // 16)
    rows = memory * 2 // 3 // ((4 if where.type == "cuda" else 8) * passages.dimension + 24)
    rows = max(1, min(rows, tile // min(len(queries), depth + EXTRA)))
    made = Search(queries, depth, passages.temperature, tile)
    for held in fed(passages, rows, where):
        made.add(held)
    return made.best()
