"""Objective of cross-encoders that compare two passages: duoBERT, duoT5."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tandem.models.cross import CrossEncoder
from tandem.models.device import move_to_device
from tandem.models.pair_prompts import join_passages
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.training.forward import MULTIPLE, Budget, Replayed, Seeds, split_lists
from tandem.training.lists import Batch
from tandem.training.objectives import Cross, apply_gradient


@dataclass(frozen=True)
class Comparisons:
    """Ordered pairs of the passages of some lists.

    Attributes:
        lists: which list each pair is of, shape (pairs,).
        first, second: the columns of its passages, likewise.
    """

    lists: Ids
    first: Ids
    second: Ids

    @classmethod
    def of_labels(cls, batch: Batch) -> "Comparisons":
        """Return each positive before each negative of its list, and behind these pairs the same turned round."""
        count = np.ones(len(batch.queries), np.int64) if batch.positives is None else batch.positives
        is_positive = batch.mask & (np.arange(batch.passages.shape[1]) < count[:, None])
        is_negative = batch.mask & ~is_positive
        lists, positive, negative = np.nonzero(is_positive[:, :, None] & is_negative[:, None, :])
        twice = np.concatenate([lists, lists])
        return cls(twice, np.concatenate([positive, negative]), np.concatenate([negative, positive]))

    @classmethod
    def of_all(cls, batch: Batch) -> "Comparisons":
        """Return each two different passages of a list, in both orders."""
        stands = batch.mask[:, :, None] & batch.mask[:, None, :]
        stands[:, np.arange(stands.shape[1]), np.arange(stands.shape[1])] = False
        return cls(*np.nonzero(stands))


@dataclass(frozen=True)
class ComparisonScores:
    """s(q, p_i, p_j) by a cross-encoder that compares, whose sigmoid is the probability that p_i is more relevant."""

    model: CrossEncoder
    tokens: Tokens
    precision: str
    budget: Budget

    def of(self, batch: Batch, pairs: Comparisons, seeds: Seeds) -> Replayed:
        """Scores of pairs of the batch's lists, in their order."""
        template = self.tokens.template
        queries = self.tokens.queries.take(batch.queries[pairs.lists])
        first = self.tokens.passages.take(batch.passages[pairs.lists, pairs.first])
        second = self.tokens.passages.take(batch.passages[pairs.lists, pairs.second])
        joined = join_passages(first, second, self.model.separator(template))

        def compute(rows: Ids) -> Tensor:
            scores: Tensor = self.model(queries.take(rows), joined.take(rows), template, self.precision, MULTIPLE)
            return scores

        lengths = self.model.adapt(template).pair_lengths(np.diff(queries.offsets), np.diff(joined.offsets))
        empty = next(self.model.parameters()).new_zeros(0)
        return Replayed(compute, lengths, empty, self.budget, seeds, self.model.packed)

    def split(self, batch: Batch) -> Iterator[Batch]:
        """See `CrossScores.split`; lists count by the pairs of `Comparisons.of_labels`."""
        pairs = Comparisons.of_labels(batch)
        template = self.tokens.template
        passages = self.tokens.passages.lengths(np.maximum(batch.passages, 0))
        joined = passages[pairs.lists, pairs.first] + passages[pairs.lists, pairs.second]
        joined = joined + len(self.model.separator(template))
        queries = self.tokens.queries.lengths(batch.queries)[pairs.lists]
        sizes = np.zeros(len(batch.queries), np.int64)
        np.add.at(sizes, pairs.lists, self.model.adapt(template).pair_lengths(queries, joined))
        yield from split_lists(batch, sizes, self.budget.graph_tokens)


class Comparing(Cross):
    """-log σ(s(q,p+,p-)) - log(1 - σ(s(q,p-,p+))), averaged over a list's pairs and orders, and over queries.

    duoBERT's loss (Nogueira et al. 2019, Eq. 3), which is a sum over all pairs; here lists weigh alike.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.compared = ComparisonScores(self.model, self.tokens, self.train.precision, self.budget)

    def split(self, batch: Batch) -> Iterator[Batch]:
        """See `SeparableRanker`."""
        return self.compared.split(batch)

    def part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """See `SeparableRanker`."""
        pairs = Comparisons.of_labels(batch)
        computed = self.compared.of(batch, pairs, seeds)
        scores = computed.values()
        half = len(scores) // 2
        signed = torch.cat([scores[:half], -scores[half:]])
        counts = np.maximum(np.bincount(pairs.lists, minlength=len(batch.queries)), 1)
        weights = move_to_device(torch.from_numpy(1 / counts[pairs.lists])).to(scores.dtype)
        values = apply_gradient({"sup": (-logsigmoid(signed) * weights).sum()}, queries)
        computed.backward()
        return values

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`: of each passage Σ_j σ(s(q, p_i, p_j)) over the others of its list."""
        pairs = Comparisons.of_all(batch)
        preferences = self.compared.of(batch, pairs, Seeds((0,))).values().sigmoid()
        places = [move_to_device(torch.from_numpy(rows)) for rows in (pairs.lists, pairs.first)]
        sums = preferences.new_zeros(batch.passages.shape).index_put(tuple(places), preferences, accumulate=True)
        return {"cross": sums}
