"""Pairs of a list's passages of which one should score higher: what pairwise losses are made of."""

from dataclasses import dataclass
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """The pairs (better, worse) of each query's list.

    Attributes:
        lead: s(q, better) - s(q, worse), 0 where there is no pair, shape (queries, …).
        there: True where a pair is, same shape.
    """

    lead: Tensor
    there: Tensor

    @classmethod
    def of_first(cls, scores: Tensor, mask: Tensor) -> Self:
        """The first passage, where it counts, against each other one, shape (queries, passages - 1)."""
        return cls._of(scores[:, :1] - scores[:, 1:], mask[:, :1] & mask[:, 1:])

    @classmethod
    def of_teacher(cls, student: Tensor, teacher: Tensor, mask: Tensor) -> Self:
        """Every passage against each that the teacher scores lower, shape (queries, passages, passages).

        Passages of equal teacher's score are no pair. The teacher gives the order alone: it has no gradient.
        """
        higher = teacher[:, :, None] > teacher[:, None, :]
        both = mask[:, :, None] & mask[:, None, :]
        return cls._of(student[:, :, None] - student[:, None, :], higher & both)

    @classmethod
    def _of(cls, lead: Tensor, there: Tensor) -> Self:
        """Pairs whose score difference is kept where there is a pair."""
        return cls(lead.masked_fill(~there, 0.0), there)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of the pairs' values, over all lists."""
        return values.masked_fill(~self.there, 0.0).sum()

    def mean(self, values: Tensor) -> Tensor:
        """The mean of each list's pairs' values, summed over lists; 0 for a list without a pair."""
        flat, there = values.masked_fill(~self.there, 0.0).flatten(1), self.there.flatten(1)
        return (flat.sum(1) / there.sum(1).clamp(min=1)).sum()
