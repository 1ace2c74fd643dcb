"""Stretches of passages on the device that searches: the next is read and copied while one is searched."""

from collections.abc import Iterator

import torch
from torch import Tensor

from tandem.cluster.background import ahead
from tandem.search.blocks import INT8
from tandem.search.exact import Array
from tandem.search.stretches import Pieces, Stretches

Parts = tuple[Tensor, Tensor | None, Tensor]  # of a stretch: values, scales of int8, ranks


class Held:
    """A stretch on the device, as it is stored.

    Args:
        values: fp16, or int8, shape (passages, dim).
        scale: of int8 vectors, float32, shape (passages,).
        ranks: alphabetical rank of each passage's id, int64, shape (passages,).
    Attributes:
        factor: what is multiplied: on CUDA the values as fp16, which sums in float32; else the vectors as float32.
        longest: an upper bound of the vectors' lengths, a float64 tensor without dimensions.
    """

    def __init__(self, values: Tensor, scale: Tensor | None, ranks: Tensor) -> None:
        self.ranks = ranks
        if values.is_cuda:  # fp16 holds int8 too
            self.factor, self.scale = values.half(), scale
        else:
            self.factor, self.scale = values.float() if scale is None else values * scale[:, None], None
        lengths = torch.linalg.vector_norm(self.factor, dim=1, dtype=torch.float32)
        lengths = lengths if self.scale is None else lengths * self.scale
        self.longest = 1.001 * lengths.max().double()  # a float32 sum may be low by less than a thousandth

    def products(self, queries: Tensor) -> Tensor:
        """q · p in float32, shape (queries, passages); queries are fp16 on CUDA, else float32."""
        if queries.is_cuda:
            made = torch.mm(queries, self.factor.T, out_dtype=torch.float32)
        else:
            made = torch.mm(queries, self.factor.T)
        return made if self.scale is None else made * self.scale

    def exact(self, rows: Tensor) -> Tensor:
        """Vectors in float64, shape (rows, dim)."""
        made = self.factor[rows].double()
        return made if self.scale is None else made * self.scale[rows, None].double()


class Buffer:
    """Host memory of a stretch, page-locked where it is copied to a GPU from.

    Args:
        rows: at most.
        dimension: of the vectors.
        int8: whether they are stored so.
        pinned: page-locked.
    """

    def __init__(self, rows: int, dimension: int, int8: bool, pinned: bool) -> None:
        kind = torch.int8 if int8 else torch.float16
        self.values = torch.empty((rows, dimension), dtype=kind, pin_memory=pinned)
        self.scale = torch.empty(rows, dtype=torch.float32, pin_memory=pinned) if int8 else None
        self.ranks = torch.empty(rows, dtype=torch.int64, pin_memory=pinned)

    def fill(self, pieces: Pieces, ranks: Array) -> Parts:
        """Read a stretch; views of this buffer."""
        start = 0
        for piece in pieces:
            at = slice(start, start + len(piece))
            self.values.numpy()[at] = piece if self.scale is None else piece["values"]
            if self.scale is not None:
                self.scale.numpy()[at] = piece["scale"]
            start = at.stop
        self.ranks.numpy()[:start] = ranks
        return self.values[:start], None if self.scale is None else self.scale[:start], self.ranks[:start]


def fed(passages: Stretches, rows: int, where: torch.device) -> Iterator[Held]:
    """Stretches of at most so many rows, one after the other; two buffers take turns."""
    int8, cuda = passages.embeddings.dtype == INT8, where.type == "cuda"
    size = min(rows, passages.rows)
    buffers = [Buffer(size, passages.dimension, int8, pinned=cuda) for _ in range(2)]
    if cuda:
        yield from _copied(passages.of(rows), buffers, where)
        return
    read = (buffers[turn % 2].fill(*stretch) for turn, stretch in enumerate(passages.of(rows)))
    with ahead(read) as coming:
        for parts in coming:
            yield Held(*parts)


def _copied(stretches: Iterator[tuple[Pieces, Array]], buffers: list[Buffer], where: torch.device) -> Iterator[Held]:
    """Stretches on a GPU: a thread reads and sends, on a stream of its own, while the caller's stream computes."""
    stream, sent = torch.cuda.Stream(where), dict[int, torch.cuda.Event]()

    def send() -> Iterator[tuple[Parts, torch.cuda.Event]]:
        """Stretches whose copy has begun, and the event of its end."""
        for number, stretch in enumerate(stretches):
            turn = number % 2
            if turn in sent:
                sent[turn].synchronize()  # the copy out of this buffer
            values, scale, ranks = buffers[turn].fill(*stretch)
            with torch.cuda.stream(stream):
                there = [part if part is None else part.to(where, non_blocking=True) for part in (values, scale, ranks)]
                sent[turn] = stream.record_event()
            yield (there[0], there[1], there[2]), sent[turn]  # type: ignore[misc]

    with ahead(send()) as coming:
        for parts, copied in coming:
            here = torch.cuda.current_stream(where)
            here.wait_event(copied)
            for part in parts:
                if part is not None:
                    part.record_stream(here)  # its memory is not used anew before this stream is done with it
            yield Held(*parts)
