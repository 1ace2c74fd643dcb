"""What an encoder reads: rows of token ids with their special tokens, and their padded form."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.models.ragged import Ids, Ragged, ends, spread


@dataclass(frozen=True)
class Inputs:
    """Rows of ids, special tokens included, laid end to end.

    Attributes:
        ids: token ids, int64, shape (tokens,).
        types: segment of each token, same shape; None where the model has no segments.
        lengths: tokens of each row, shape (rows,).
        pad: the padding id.
    """

    ids: Ids
    types: Ids | None
    lengths: Ids
    pad: int

    @classmethod
    def join(cls, parts: list[tuple[Ragged, int]], types: bool, pad: int) -> "Inputs":
        """Put parts one after the other in every row.

        Args:
            parts: each part's rows, and its segment.
            types: whether the model has segments.
            pad: the padding id.
        """
        sizes = [np.diff(part.offsets) for part, _ in parts]
        lengths = np.sum(sizes, axis=0)
        at, ids = ends(lengths)[:-1], np.empty(int(lengths.sum()), np.int64)
        segments = np.zeros_like(ids) if types else None
        for (part, segment), size in zip(parts, sizes, strict=True):
            places = spread(at, size)
            ids[places] = part.ids
            if segments is not None and segment:
                segments[places] = segment
            at = at + size
        return cls(ids, segments, lengths, pad)

    def filled(self, rows: int) -> "Inputs":
        """The same with more rows behind, each a single padding id, up to `rows`."""
        more = rows - len(self.lengths)
        types = None if self.types is None else np.pad(self.types, (0, more))
        ids = np.pad(self.ids, (0, more), constant_values=self.pad)
        return Inputs(ids, types, np.pad(self.lengths, (0, more), constant_values=1), self.pad)

    def padded(self, multiple: int = 1) -> dict[str, Tensor]:
        """Tensors of (rows, longest), the length up to a multiple of `multiple`, as transformers takes them."""
        width = -(-int(self.lengths.max(initial=0)) // multiple) * multiple
        stands = np.arange(width) < self.lengths[:, None]
        ids = np.full(stands.shape, self.pad, np.int64)
        ids[stands] = self.ids
        made = {"input_ids": ids, "attention_mask": stands.astype(np.int64)}
        if self.types is not None:
            made["token_type_ids"] = np.zeros_like(ids)
            made["token_type_ids"][stands] = self.types
        return {name: torch.from_numpy(array) for name, array in made.items()}
