"""Number the instances of an epoch, and draw the passages of each visit of an instance.

An instance is visited once per epoch. It is a query's list, one positive of a list, or one row as in the training files
that RocketQA and DuReader-retrieval released. The order of an epoch and every draw follow only from (seed, epoch,
instance): resuming needs no state, and workers or shards change nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, Self

import numpy as np

from tandem.config.training import TEACHING, CrossTrain, SingleTrain, Train
from tandem.data.columns import Floats
from tandem.models.ragged import Ids, sum_lengths
from tandem.store.job import load
from tandem.training.lists import Batch, Lists

_InstanceKind = Literal["query", "positive", "row"]
Arrange = Callable[["Instances", Ids, int, int, int], Ids]


@dataclass(eq=False)
class Instances:
    """Number the instances of some lists, list after list, and draw their visits.

    - `query`: a list; each visit draws `most` of its positives, by default one, and negatives.
    - `positive`: a positive with `size` - 1 of its list's negatives.
    - `row`: a positive with one of these negatives; with `pairs`, for cross-encoders, a single passage of these.

    Attributes:
        size: number of passages that a visit draws, positives and negatives together.
        most: number of positives that a visit of a `query` draws, at most.
        draw: draws a visit of a `query` by a teacher's scores; None: `draw_list` draws it without scores.
        labels: targets that replace the teacher's scores of the passages that `draw` returns, shape (size,); None: the
            scores themselves are the targets.
        arrange: `(instances, order, per_batch, seed, epoch) -> order` changes the random order of an epoch; None: the
            order stays random.
        resample: draw the negatives anew at each visit. Otherwise a list's negatives are shuffled once and dealt out to
            its positives, from the first one again when they run out.
    """

    lists: Lists
    size: int
    kind: _InstanceKind = "query"
    most: int = 1
    resample: bool = True
    pairs: bool = False
    arrange: Arrange | None = None
    draw: Callable[[Lists, int, int, int, int, int], Ids] | None = None
    labels: Floats | None = None

    def __post_init__(self) -> None:
        lists = self.lists
        passages = np.diff(lists.offsets)
        self.negatives_per_positive = np.minimum(self.size - 1, passages - lists.positives)
        # For cross-encoders the positive itself is a row, too.
        if self.kind == "row":
            self.rows_per_positive = self.negatives_per_positive + self.pairs
        else:
            self.rows_per_positive = np.ones(len(lists), np.int64)
        # List i has the instances bounds[i] to bounds[i + 1].
        if self.kind == "query":
            self.bounds = np.arange(len(lists) + 1)
        else:
            self.bounds = sum_lengths(lists.positives * self.rows_per_positive)

    @classmethod
    def of(cls, lists: Lists, train: Train, arrange: Arrange | None = None) -> Self:
        """Return the instances that a training visits."""
        if not isinstance(train, SingleTrain):
            return cls(lists, train.list_size, most=train.positives)
        draw = None
        labels = None
        if train.margin_bins or train.groups:
            draw, labels = load(TEACHING["distil"].draws)(train)
        return cls(
            lists,
            train.list_size,
            kind=train.instance,
            most=train.positives,
            resample=train.resample,
            pairs=isinstance(train, CrossTrain),
            arrange=arrange,
            draw=draw,
            labels=labels,
        )

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def order(self, per_batch: int, seed: int, epoch: int) -> Ids:
        """Return the instances in the order in which an epoch visits them."""
        order = np.random.default_rng([seed, 0, epoch]).permutation(len(self))
        if self.arrange is None:
            return order
        order = self.arrange(self, order, per_batch, seed, epoch)
        checked: Ids = load("extras.training_additions:check_order")(order, len(self), self.arrange)
        return checked

    def visit(self, number: int, seed: int, epoch: int) -> tuple[int, Ids]:
        """Draw the passages of one visit of an instance.

        Returns:
            The index of the list, and the places of the passages in `lists.passages`, positives first, padded with -1:
            shape (size,), for rows (2,).
        """
        index = int(np.searchsorted(self.bounds, number, side="right")) - 1
        if self.kind == "query":
            draw = self.draw or draw_list
            return index, draw(self.lists, index, self.size, seed, epoch, self.most)

        place_in_list = number - int(self.bounds[index])
        positive, row = divmod(place_in_list, int(self.rows_per_positive[index]))
        positive_place = int(self.lists.offsets[index]) + positive
        negatives = self._draw_negatives(index, positive, seed, epoch)
        if self.kind == "positive":
            places = np.full(self.size, -1, np.int64)
            places[0] = positive_place
            places[1 : 1 + len(negatives)] = negatives
            return index, places
        if not self.pairs:
            return index, np.array([positive_place, negatives[row]], np.int64)
        # A cross-encoder's row is a single pair: the positive, then each of its negatives.
        pair = [positive_place, -1] if row == 0 else [-1, negatives[row - 1]]
        return index, np.array(pair, np.int64)

    def _draw_negatives(self, index: int, positive: int, seed: int, epoch: int) -> Ids:
        """Return the places in `lists.passages` of the negatives for one positive of a list."""
        first = int(self.lists.offsets[index]) + int(self.lists.positives[index])
        available = int(self.lists.offsets[index + 1]) - first
        count = int(self.negatives_per_positive[index])
        if self.resample:
            rng = np.random.default_rng([seed, 1, epoch, index, positive])
            return first + rng.permutation(available)[:count]
        # Dealt out like cards: each positive takes the next ones, from the first one again when they run out.
        dealt = np.random.default_rng([seed, 3, index]).permutation(available)
        turns = positive * count + np.arange(count)
        return first + dealt[turns % max(1, available)]


def draw_list(
    lists: Lists,
    index: int,
    size: int,
    seed: int,
    epoch: int,
    most: int = 1,
    sort: Callable[[Floats, np.random.Generator], Ids] | None = None,
) -> Ids:
    """Draw one visit of a list: `most` of its positives, then negatives up to `size` in all, without replacement.

    Args:
        sort: reorders the shuffled negatives by the teacher's margins t(q, p+) - t(q, p-).
    Returns:
        The places of the passages in `lists.passages`, shape (size,), padded with -1.
    """
    rng = np.random.default_rng([seed, 1, epoch, index])
    start = int(lists.offsets[index])
    positives = int(lists.positives[index])
    first_negative = start + positives
    places = np.full(size, -1, np.int64)

    # A single positive has a call of its own, which draws what trainings with one positive have always drawn.
    chosen_positives = (
        rng.permutation(positives)[:most] if most > 1 else rng.integers(positives, size=1)
    )
    taken = len(chosen_positives)
    places[:taken] = start + chosen_positives

    order = rng.permutation(int(lists.offsets[index + 1]) - first_negative)
    if sort is not None and lists.scores is not None:
        margins = lists.scores[places[0]] - lists.scores[first_negative + order]
        order = order[sort(margins, rng)]
    chosen_negatives = order[: size - taken]
    places[taken : taken + len(chosen_negatives)] = first_negative + chosen_negatives
    return places


def count_visits(
    instances: int, per_batch: int, epochs: float, steps: int | None, kind: _InstanceKind = "query"
) -> int:
    """Return how many instances a training visits.

    If `steps` is set, that many full batches; else `epochs` passes over the instances. The last batch of queries may be
    smaller. Positives and rows always come in full batches: their number is rounded.

    >>> count_visits(10, per_batch=4, epochs=1, steps=None), count_visits(10, per_batch=4, epochs=1, steps=5)
    (10, 20)
    """
    if steps is not None:
        return steps * per_batch
    if kind == "query":
        # 0.07 * 100 is 7.000000000000001, which must not become 8
        exact = round(epochs * instances, 6)
        return max(1, int(np.ceil(exact)))
    return per_batch * max(1, round(epochs * instances / per_batch))


def iter_batches(
    instances: Instances, per_batch: int, seed: int, visits: int, first: int = 0
) -> Iterator[Batch]:
    """Yield the batches from step `first` on.

    Epochs, each a permutation of the instances, follow each other without a gap, so a batch may span two epochs. The
    last batch of the training's `visits` may be smaller.
    """
    # Two orders are kept, as a batch may begin in one epoch and end in the next.
    order_of_epoch = lru_cache(maxsize=2)(partial(instances.order, per_batch, seed))
    for start in range(first * per_batch, visits, per_batch):
        drawn = []
        for visit in range(start, min(start + per_batch, visits)):
            epoch, place = divmod(visit, len(instances))
            drawn.append(instances.visit(int(order_of_epoch(epoch)[place]), seed, epoch))
        yield _make_batch(instances, drawn)


def _make_batch(instances: Instances, drawn: list[tuple[int, Ids]]) -> Batch:
    """Return the batch of some visits, each the index of a list and the places of its passages."""
    lists = instances.lists
    indices = [index for index, _ in drawn]
    places = np.stack([places_of_list for _, places_of_list in drawn])
    is_passage = places >= 0
    passages = np.where(is_passage, lists.passages[places], -1).astype(np.int64)
    teacher = None
    if lists.scores is not None:
        learned = lists.scores[places] if instances.labels is None else instances.labels
        teacher = np.where(is_passage, learned, np.float32("nan"))
    positives = None
    if instances.most > 1:
        positives = np.minimum(instances.most, lists.positives[indices])
    return Batch(lists.queries[indices], passages, teacher, positives)
