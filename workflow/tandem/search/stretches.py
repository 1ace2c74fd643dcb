"""Passages' vectors as an exact search reads them: stretches of as many rows as memory allows, whatever the blocks."""

from collections.abc import Iterator, Sequence

import numpy as np

from tandem.cluster.progress import Progress
from tandem.search.blocks import Embeddings, Vectors
from tandem.search.exact import Array
from tandem.search.quantised import restore

ALIGNED = 64  # lengths that engines like
Pieces = list[Array]  # rows as they are stored, memory-mapped


class Stretches:
    """Some blocks of embeddings, to be read in order and any number of times.

    Args:
        embeddings: of passages.
        numbers: the blocks.
        ranks: alphabetical rank of each passage's id, of all passages.
        progress: counts passages that were read.
    """

    def __init__(self, embeddings: Embeddings, numbers: Sequence[int], ranks: Array, progress: Progress) -> None:
        self.embeddings, self.numbers, self.ranks, self.progress = embeddings, numbers, ranks, progress
        self.dimension: int = embeddings.dimension
        self.temperature: float = embeddings.meta["temperature"]
        size = embeddings.size
        self.rows = sum(min(size, embeddings.rows - number * size) for number in numbers)

    def of(self, rows: int) -> Iterator[tuple[Pieces, Array]]:
        """Stretches of at most so many rows, alike in length: what is stored, and the ranks.

        Blocks are cut, and put together, as it takes: an engine wastes less on few long stretches.
        """
        most = -(-self.rows // -(-self.rows // max(1, rows)))
        most = max(1, min(rows, -(-most // ALIGNED) * ALIGNED))
        pieces, ranks, held = Pieces(), list[Array](), 0
        for number in self.numbers:
            stored, first = self.embeddings.stored(number), number * self.embeddings.size
            start = 0
            while start < len(stored):
                stop = min(len(stored), start + most - held)
                pieces.append(stored[start:stop])
                ranks.append(self.ranks[first + start : first + stop])
                held, start = held + stop - start, stop
                if held == most:
                    yield pieces, np.concatenate(ranks)
                    self.progress.add(held)
                    pieces, ranks, held = Pieces(), [], 0
        if held:
            yield pieces, np.concatenate(ranks)
            self.progress.add(held)

    def joined(self, pieces: Pieces) -> Vectors:
        """The vectors of a stretch, float32, shape (rows, dim)."""
        made = np.empty((sum(map(len, pieces)), self.dimension), np.float32)
        start = 0
        for piece in pieces:
            made[start : start + len(piece)] = restore(piece) if piece.dtype.names else piece
            start += len(piece)
        return made
