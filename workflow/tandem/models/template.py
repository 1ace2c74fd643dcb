"""Where special tokens go: learned from the tokenizer once, so that stored token ids need none."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch

from tandem.models.inputs import Inputs
from tandem.models.ragged import Ids as Ids
from tandem.models.ragged import Ragged

Texts = Ragged | Sequence[Ids]


@dataclass(frozen=True)
class Template:
    """The special tokens around one text or a pair, and the segment numbers of a pair.

    Attributes:
        single: ids before and after one text.
        pair: ids before the first text, between the two, and after the second.
        types: segment of (before, first, between, second, after) in a pair; None where the model has no segments.
        pad: the padding id.
    """

    single: tuple[tuple[int, ...], tuple[int, ...]]
    pair: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    types: tuple[int, int, int, int, int] | None
    pad: int

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Encode two probe texts and read off what the tokenizer put around them."""
        a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a", "b"))
        one, two = tokenizer("a")["input_ids"], tokenizer("a", "b")
        ids, at = two["input_ids"], _find(one, a)
        first = _find(two["input_ids"], a)
        second = _find(ids, b, first + len(a))
        pair = (tuple(ids[:first]), tuple(ids[first + len(a) : second]), tuple(ids[second + len(b) :]))
        types = None
        if "token_type_ids" in two:
            segment = two["token_type_ids"]
            around = [(0, pair[0]), (first + len(a), pair[1]), (second + len(b), pair[2])]
            before, between, after = (segment[i] if part else 0 for i, part in around)
            types = (before, segment[first], between, segment[second], after)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        return cls((tuple(one[:at]), tuple(one[at + len(a) :])), pair, types, pad)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Self:
        """The template `to_json` described."""
        types = told["types"]
        return cls(
            tuple(tuple(part) for part in told["single"]),  # type: ignore[arg-type]
            tuple(tuple(part) for part in told["pair"]),  # type: ignore[arg-type]
            None if types is None else tuple(types),
            told["pad"],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)

    @property
    def extra(self) -> tuple[int, int]:
        """How many special tokens a single text and a pair get."""
        return sum(map(len, self.single)), sum(map(len, self.pair))

    def single_inputs(self, texts: Ragged) -> Inputs:
        """Single texts in their special tokens."""
        before, after = (_repeated(part, len(texts)) for part in self.single)
        return Inputs.join([(before, 0), (texts, 0), (after, 0)], self.types is not None, self.pad)

    def pair_inputs(self, first: Ragged, second: Ragged) -> Inputs:
        """Pairs (query, passage) in their special tokens."""
        before, between, after = (_repeated(part, len(first)) for part in self.pair)
        parts = zip((before, first, between, second, after), self.types or (0, 0, 0, 0, 0), strict=True)
        return Inputs.join(list(parts), self.types is not None, self.pad)

    def singles(self, texts: Texts, multiple: int = 1) -> dict[str, torch.Tensor]:
        """Padded model inputs for single texts: each tensor is (texts, longest), up to a multiple of `multiple`."""
        return self.single_inputs(Ragged.of(texts)).padded(multiple)

    def pairs(self, first: Texts, second: Texts, multiple: int = 1) -> dict[str, torch.Tensor]:
        """Padded model inputs for pairs (query, passage): each tensor is (pairs, longest), up to a multiple."""
        return self.pair_inputs(Ragged.of(first), Ragged.of(second)).padded(multiple)


def _repeated(part: tuple[int, ...], rows: int) -> Ragged:
    """The same ids in every row."""
    return Ragged(np.tile(np.array(part, np.int64), rows), np.arange(rows + 1) * len(part))


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    """Index of a sub-list at or after `start`."""
    for i in range(start, len(ids) - len(part) + 1):
        if ids[i : i + len(part)] == part:
            return i
    raise ValueError(f"{part} does not occur in {ids}")
