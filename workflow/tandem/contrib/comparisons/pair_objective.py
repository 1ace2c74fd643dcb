"""Objective of cross-encoders that compare two passages: duoBERT, duoT5."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tandem.config.training import CrossTrain
from tandem.contrib.comparisons.compare_passages import find_room, join_passages
from tandem.models.cross import CrossEncoder
from tandem.models.device import place_array
from tandem.models.ragged import Ids
from tandem.models.tokens import Tokens
from tandem.stages.training import ModelParams
from tandem.store.job import Job
from tandem.training.distributed import World
from tandem.training.forward import Budget, CrossScores, Replayed, Seeds, split_lists
from tandem.training.lists import Batch, Positives
from tandem.training.objectives import Cross, apply_gradient


@dataclass(frozen=True)
class Comparisons:
    """Ordered pairs of the passages of some lists.

    Attributes:
        lists: the list of each pair, shape (pairs,).
        first, second: the columns of the pair's passages in its list, shape (pairs,).
    """

    lists: Ids
    first: Ids
    second: Ids

    @classmethod
    def of_labels(cls, batch: Batch) -> "Comparisons":
        """Return the pairs of each positive with each negative of its list, and after these the same pairs reversed."""
        count = (
            np.ones(len(batch.queries), np.int64) if batch.positives is None else batch.positives
        )
        is_positive = batch.mask & (np.arange(batch.passages.shape[1]) < count[:, None])
        is_negative = batch.mask & ~is_positive
        lists, positive, negative = np.nonzero(is_positive[:, :, None] & is_negative[:, None, :])
        return cls(
            lists=np.concatenate([lists, lists]),
            first=np.concatenate([positive, negative]),
            second=np.concatenate([negative, positive]),
        )

    @classmethod
    def of_all(cls, batch: Batch) -> "Comparisons":
        """Return all pairs of different passages of a list, in both orders."""
        stands = batch.mask[:, :, None] & batch.mask[:, None, :]
        is_itself = np.eye(stands.shape[1], dtype=bool)
        return cls(*np.nonzero(stands & ~is_itself))


class ComparisonScores(CrossScores):
    """s(q, p_i, p_j) by a cross-encoder that compares; its sigmoid is the probability that p_i is more relevant."""

    def compare(self, batch: Batch, pairs: Comparisons, seeds: Seeds) -> Replayed:
        """Compute the scores of pairs of the batch's lists, in their order."""
        queries = self.tokens.queries.take(batch.queries[pairs.lists])
        first = self.tokens.passages.take(batch.passages[pairs.lists, pairs.first])
        second = self.tokens.passages.take(batch.passages[pairs.lists, pairs.second])
        template = self.tokens.template
        room = find_room(self.model, template, queries)
        joined = join_passages(first, second, self.model.separator(template), room)
        return self.replay(queries, joined, seeds)

    def split(self, batch: Batch) -> Iterator[Batch]:
        """See `CrossScores.split`; a list's size is that of its pairs in `Comparisons.of_labels`."""
        pairs = Comparisons.of_labels(batch)
        template = self.tokens.template
        passages = self.tokens.passages.lengths(np.maximum(batch.passages, 0))
        joined = passages[pairs.lists, pairs.first] + passages[pairs.lists, pairs.second]
        joined = joined + len(self.model.separator(template))
        queries = self.tokens.queries.lengths(batch.queries)[pairs.lists]
        sizes = np.zeros(len(batch.queries), np.int64)
        np.add.at(sizes, pairs.lists, self.model.adapt(template).pair_lengths(queries, joined))
        yield from split_lists(batch, sizes, self.budget.graph_tokens)


class ComparisonObjective(Cross):
    """-log σ(s(q,p+,p-)) - log(1 - σ(s(q,p-,p+))), averaged over a list's pairs and orders, and over queries.

    duoBERT's loss (Nogueira et al. 2019, Eq. 3). There it is a sum over all pairs; here all lists have the same weight.
    """

    pairs: ComparisonScores

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pairs = ComparisonScores(self.model, self.tokens, self.train.precision, self.budget)

    def backward_part(self, batch: Batch, queries: int, seeds: Seeds) -> dict[str, float]:
        """See `SeparableRanker`."""
        pairs = Comparisons.of_labels(batch)
        computed = self.pairs.compare(batch, pairs, seeds)
        scores = computed.values()
        # The second half are the same pairs reversed, with 1 - σ(s) = σ(-s).
        half = len(scores) // 2
        signed = torch.cat([scores[:half], -scores[half:]])
        counts = np.maximum(np.bincount(pairs.lists, minlength=len(batch.queries)), 1)
        weights = place_array(1 / counts[pairs.lists]).to(scores.dtype)
        values = apply_gradient({"sup": (-logsigmoid(signed) * weights).sum()}, queries)
        computed.backward()
        return values

    @torch.no_grad()
    def scores(self, batch: Batch, pool: Ids) -> dict[str, Tensor]:
        """See `Ranker`. A passage's score is Σ_j σ(s(q, p_i, p_j)) over the other passages of its list."""
        pairs = Comparisons.of_all(batch)
        preferences = self.pairs.compare(batch, pairs, Seeds((0,))).values().sigmoid()
        places = (place_array(pairs.lists), place_array(pairs.first))
        sums = preferences.new_zeros(batch.passages.shape).index_put(
            places, preferences, accumulate=True
        )
        return {"cross": sums}


def start_comparing(
    job: Job[ModelParams],
    model: CrossEncoder,
    tokens: Tokens,
    train: CrossTrain,
    positives: Positives,
    budget: Budget,
    world: World,
) -> ComparisonObjective:
    """Return the objective of a model that compares passages; `job` is not used."""
    return ComparisonObjective(model, tokens, train, positives, budget, world)
