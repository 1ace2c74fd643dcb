"""What an epoch visits once, and how a visit draws its passages.

An instance is a query's list, one positive of it, or one row as RocketQA and DuReader-retrieval released theirs. The
order of an epoch and every draw follow from (seed, epoch, instance) alone: resuming needs no state, and workers or
shards change nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, Self

import numpy as np

from tandem.config.training import CrossTrain, RankGroup, SingleTrain, Train
from tandem.data.columns import Floats
from tandem.models.ragged import Ids, ends
from tandem.training.lists import Batch, Lists

Kind = Literal["query", "positive", "row"]


@dataclass(eq=False)
class Instances:
    """The instances of some lists, numbered list after list.

    - `query`: a list, with one of its positives or `most` of them, drawn at each visit.
    - `positive`: a positive with `size` - 1 of its list's negatives.
    - `row`: a positive with a single one of these negatives; with `pairs`, of cross-encoders, either of them alone.

    Attributes:
        size: passages of a positive and its negatives.
        bins: draw a list's negatives evenly from so many ranges of the teacher's margins (`balanced`), of `query`
            alone; None: from all alike.
        groups: draw a list by its ranks under the teacher (`ranked_draw`), of `query` alone.
        topics: topic of each query row; an epoch's batches have queries of one topic (`by_topic`); None: of any.
        resample: draw the negatives anew at each visit. Else a list's negatives are dealt out to its positives once,
            in a shuffled order, and again from the first where they do not go round.
    """

    lists: Lists
    size: int
    kind: Kind = "query"
    most: int = 1
    resample: bool = True
    pairs: bool = False
    bins: int | None = None
    topics: Ids | None = None
    groups: Sequence[RankGroup] = ()

    def __post_init__(self) -> None:
        lists, kind = self.lists, self.kind
        self.negatives = np.minimum(self.size - 1, np.diff(lists.offsets) - lists.positives)  # of a positive
        self.rows = self.negatives + self.pairs if kind == "row" else np.ones(len(lists), np.int64)  # of a positive
        self.bounds = np.arange(len(lists) + 1) if kind == "query" else ends(lists.positives * self.rows)

    @classmethod
    def of(cls, lists: Lists, train: Train, topics: Ids | None = None) -> Self:
        """The instances that a training visits."""
        if not isinstance(train, SingleTrain):
            return cls(lists, train.list_size, most=train.positives)
        pairs = isinstance(train, CrossTrain)
        kinds = train.instance, train.positives, train.resample, pairs
        return cls(lists, train.list_size, *kinds, bins=train.margin_bins, topics=topics, groups=train.groups)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def order(self, per_batch: int, seed: int, epoch: int) -> Ids:
        """The instances in the order in which an epoch visits them."""
        drawn = np.random.default_rng([seed, 0, epoch]).permutation(len(self))
        if self.topics is None:
            return drawn
        topics = self.topics[self.lists.queries[np.searchsorted(self.bounds, drawn, side="right") - 1]]
        begun = -epoch * len(self) % per_batch
        return by_topic(drawn, topics, per_batch, begun, np.random.default_rng([seed, 4, epoch]))

    def visit(self, number: int, seed: int, epoch: int) -> tuple[int, Ids]:
        """One visit of an instance.

        Returns:
            The list, and where the passages stand in `lists.passages`, the positive's place first; -1 where none
            stands, shape (size,), of rows (2,).
        """
        index = int(np.searchsorted(self.bounds, number, side="right")) - 1
        if self.groups:
            return index, ranked_draw(self.lists, index, self.groups, seed, epoch)
        if self.kind == "query":
            return index, draw(self.lists, index, self.size, seed, epoch, self.most, self.bins)
        positive, row = divmod(number - int(self.bounds[index]), int(self.rows[index]))
        first = int(self.lists.offsets[index])
        negatives = self._negatives(index, positive, seed, epoch)
        if self.kind == "positive":
            places = np.full(self.size, -1, np.int64)
            places[0], places[1 : 1 + len(negatives)] = first + positive, negatives
        elif self.pairs:
            places = np.array([first + positive, -1] if row == 0 else [-1, negatives[row - 1]], np.int64)
        else:
            places = np.array([first + positive, negatives[row]], np.int64)
        return index, places

    def _negatives(self, index: int, positive: int, seed: int, epoch: int) -> Ids:
        """The indices in `lists.passages` of the negatives for a list's positive."""
        start, stop = (int(end) for end in self.lists.offsets[index : index + 2])
        start, count = start + int(self.lists.positives[index]), int(self.negatives[index])
        if self.resample:
            return start + np.random.default_rng([seed, 1, epoch, index, positive]).permutation(stop - start)[:count]
        dealt = np.random.default_rng([seed, 3, index]).permutation(stop - start)
        return start + dealt[(positive * count + np.arange(count)) % max(1, stop - start)]


def draw(lists: Lists, index: int, size: int, seed: int, epoch: int, most: int = 1, bins: int | None = None) -> Ids:
    """One visit of a list: `most` of its positives, then negatives up to `size` in all, each without replacement.

    Returns:
        Where they stand in `lists.passages`, shape (size,), padded with -1.
    """
    rng = np.random.default_rng([seed, 1, epoch, index])
    start, positives = int(lists.offsets[index]), int(lists.positives[index])
    places = np.full(size, -1, np.int64)
    own = rng.permutation(positives)[:most] if most > 1 else rng.integers(positives, size=1)
    places[: len(own)] = start + own
    order = rng.permutation(int(lists.offsets[index + 1]) - start - positives)
    if bins is not None and lists.scores is not None:
        margins = lists.scores[places[0]] - lists.scores[order + (start + positives)]
        order = order[balanced(margins, bins, rng.permutation(bins))]
    chosen = order[: size - len(own)]
    places[len(own) : len(own) + len(chosen)] = chosen + (start + positives)
    return places


def balanced(margins: Floats, bins: int, turns: Ids) -> Ids:
    """Negatives of a list in an order that takes one of each range of margins in turn: balanced margins of TAS-B.

    The range from the list's smallest margin to its largest is cut into `bins` equal parts; empty ones are passed over.
    Hofstätter et al. 2021 draw a part evenly, then one of its pairs: this is that for a single negative, and without
    replacement for more.

    Args:
        margins: t(q, p+) - t(q, p-) of the negatives, which stand in random order; NaN, without a score, is in no part
            and last.
        turns: a random order of the parts, shape (bins,).
    """
    known = np.isfinite(margins)
    parts = np.full(len(margins), bins, np.int64)  # what has no score is behind all parts
    if known.any():
        low, high = margins[known].min(), margins[known].max()
        shares = (margins[known] - low) / ((high - low) or 1.0)
        parts[known] = np.minimum((shares * bins).astype(np.int64), bins - 1)
    before = np.tril(parts[:, None] == parts[None, :], -1).sum(1)  # of the same part, earlier in the order
    return np.lexsort((np.append(turns, bins)[parts], before, ~known))


def ranked_draw(lists: Lists, index: int, groups: Sequence[RankGroup], seed: int, epoch: int) -> Ids:
    """One visit of a list by its ranks under the teacher: all passages of the first group, random ones of the others.

    The positive, one of several, has rank 1; other positives and what the teacher has not scored are left out.

    Returns:
        Where they stand in `lists.passages`, group after group, padded with -1 where a group has too few.
    """
    if lists.scores is None:
        raise ValueError("train.groups needs lists with a teacher's scores")
    rng = np.random.default_rng([seed, 1, epoch, index])
    start, stop = (int(end) for end in lists.offsets[index : index + 2])
    positives = int(lists.positives[index])
    scores = lists.scores[start + positives : stop]
    order = np.argsort(-scores, kind="stable")[: int(np.isfinite(scores).sum())]  # NaN is last
    ranked = np.concatenate([[start + rng.integers(positives)], start + positives + order])
    places, first, column = np.full(sum(group.passages for group in groups), -1, np.int64), 0, 0
    for group in groups:
        window = ranked[first : group.last_rank]
        chosen = window[np.sort(rng.permutation(len(window))[: group.passages])]
        places[column : column + len(chosen)] = chosen
        first, column = group.last_rank, column + group.passages
    return places


def pseudo_labels(groups: Sequence[RankGroup]) -> Floats:
    """Stand-ins for the scores of `ranked_draw`'s passages: 1/rank in the first group, then 0, -1, … by group.

    Zeng et al. 2022 (CL-DRD), whose later labels differ: only their order counts in its loss. Shape (passages,).
    """
    levels = [np.full(group.passages, -level) for level, group in enumerate(groups[1:])]
    return np.concatenate([1 / np.arange(1, groups[0].passages + 1), *levels]).astype(np.float32)


def visits_in(instances: int, per_batch: int, epochs: float, steps: int | None, kind: Kind = "query") -> int:
    """How many instances training visits.

    `steps` full batches if set. Else `epochs` passes: of queries with an uneven last batch, of positives and rows in as
    many full batches as come nearest.
    """
    if steps is None and kind != "query":
        steps = max(1, round(epochs * instances / per_batch))
    return steps * per_batch if steps is not None else max(1, int(np.ceil(epochs * instances)))


def by_topic(order: Ids, topics: Ids, per_batch: int, begun: int, rng: np.random.Generator) -> Ids:
    """An epoch's order in which each batch is of one topic: topic-aware sampling (Hofstätter et al. 2021).

    Every instance is still visited once an epoch, where the paper draws a topic for each batch. What does not fill a
    batch of its topic is in batches of several topics, neighbours in the topics' numbers.

    Args:
        order: the instances in random order.
        topics: of each of them, same shape.
        begun: instances that complete the last batch of the epoch before.
        rng: shuffles the batches.
    """
    sizes = np.unique(topics, return_counts=True)[1]
    groups = np.split(order[np.argsort(topics, kind="stable")], np.cumsum(sizes)[:-1])
    cuts = [len(group) // per_batch * per_batch for group in groups]
    full = np.concatenate([group[:cut] for group, cut in zip(groups, cuts, strict=True)]).reshape(-1, per_batch)
    rest = np.concatenate([group[cut:] for group, cut in zip(groups, cuts, strict=True)])
    full = full[rng.permutation(len(full))]
    if len(rest) < begun and len(full):
        full, rest = full[:-1], np.concatenate([full[-1], rest])
    return np.concatenate([rest[:begun], full.ravel(), rest[begun:]])


def batches(instances: Instances, per_batch: int, seed: int, visits: int, first: int = 0) -> Iterator[Batch]:
    """The batches from step `first` on: epochs are permutations of the instances, laid end to end.

    Of all `visits` of the whole training the last batch may be smaller.
    """
    lists, count, most = instances.lists, len(instances), instances.most
    ordered = lru_cache(maxsize=2)(partial(instances.order, per_batch, seed))
    for start in range(first * per_batch, visits, per_batch):
        visited = [divmod(visit, count) for visit in range(start, min(start + per_batch, visits))]
        drawn = [instances.visit(int(ordered(epoch)[at]), seed, epoch) for epoch, at in visited]
        rows, places = [index for index, _ in drawn], np.stack([places for _, places in drawn])
        stands = places >= 0
        passages = np.where(stands, lists.passages[places], -1).astype(np.int64)
        scores = lists.scores
        if scores is not None:
            learned = pseudo_labels(instances.groups) if instances.groups else scores[places]
            scores = np.where(stands, learned, np.float32("nan"))
        counts = np.minimum(most, lists.positives[rows]) if most > 1 else None
        yield Batch(lists.queries[rows], passages, scores, counts)
