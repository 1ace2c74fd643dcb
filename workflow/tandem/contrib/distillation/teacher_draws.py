"""Draw a list's passages at a visit by a teacher's scores: evenly by margins, or by ranks."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tandem.config.training import RankGroup, SingleTrain
from tandem.data.columns import Floats
from tandem.models.ragged import Ids
from tandem.training.instances import draw_list
from tandem.training.lists import Lists


def find_draws(train: SingleTrain) -> tuple[Callable[..., Ids], Floats | None]:
    """Return how a training with `groups` or `margin_bins` draws a visit, and labels that replace scores, or None."""
    if train.groups:
        return partial(draw_by_rank, groups=train.groups), label_ranks(train.groups)
    assert train.margin_bins is not None
    return partial(draw_by_margin, bins=train.margin_bins), None


def draw_by_margin(
    lists: Lists, index: int, size: int, seed: int, epoch: int, most: int, *, bins: int
) -> Ids:
    """Draw one visit of a list, its negatives evenly from so many ranges of the teacher's margins."""

    def sort(margins: Floats, rng: np.random.Generator) -> Ids:
        """Order negatives by their ranges, whose turns are random."""
        return order_by_margin(margins, bins, rng.permutation(bins))

    return draw_list(lists, index, size, seed, epoch, most, sort)


def order_by_margin(margins: Floats, bins: int, turns: Ids) -> Ids:
    """Order negatives so that each range of margins has its turn: the balanced margins of TAS-B.

    The range from the list's smallest margin to its largest is cut into `bins` equal parts; empty ones are passed over.
    Hofstätter et al. 2021 draw a part evenly, then one of its pairs. For a single negative this is the same; several
    negatives are drawn without replacement.

    Args:
        margins: t(q, p+) - t(q, p-) of the negatives, which are in random order; those without a score (NaN) are in no
            part and come last.
        turns: a random order of the parts, shape (bins,).
    """
    known = np.isfinite(margins)
    parts = np.full(len(margins), bins, np.int64)  # what has no score is behind all parts
    if known.any():
        low = margins[known].min()
        high = margins[known].max()
        shares = (margins[known] - low) / ((high - low) or 1.0)
        parts[known] = np.minimum((shares * bins).astype(np.int64), bins - 1)
    # How many of the same part come earlier: row i of the lower triangle looks at the negatives before i.
    earlier = np.tril(parts[:, None] == parts[None, :], -1).sum(1)
    turn_of_part = np.append(turns, bins)
    return np.lexsort((turn_of_part[parts], earlier, ~known))  # the last key decides first


def draw_by_rank(
    lists: Lists,
    index: int,
    size: int,
    seed: int,
    epoch: int,
    most: int,
    *,
    groups: Sequence[RankGroup],
) -> Ids:
    """Draw one visit of a list by its teacher's ranks: all passages of the first group, random ones of the others.

    A positive, drawn if there are several, has rank 1; other positives and passages without a teacher's score are left
    out. The groups have `size` passages in all, and `most` is 1.

    Returns:
        Places in `lists.passages`, group after group, padded with -1 where a group has too few.
    """
    if lists.scores is None:
        raise ValueError("train.groups needs lists with a teacher's scores")
    rng = np.random.default_rng([seed, 1, epoch, index])
    start = int(lists.offsets[index])
    positives = int(lists.positives[index])
    first_negative = start + positives

    scores = lists.scores[first_negative : int(lists.offsets[index + 1])]
    scored = int(np.isfinite(scores).sum())
    best_first = np.argsort(-scores, kind="stable")[:scored]  # NaN is last
    ranked = np.concatenate([[start + rng.integers(positives)], first_negative + best_first])

    places = np.full(sum(group.passages for group in groups), -1, np.int64)
    first_rank = 0
    column = 0
    for group in groups:
        window = ranked[first_rank : group.last_rank]
        chosen = window[np.sort(rng.permutation(len(window))[: group.passages])]
        places[column : column + len(chosen)] = chosen
        first_rank = group.last_rank
        column += group.passages
    return places


def label_ranks(groups: Sequence[RankGroup]) -> Floats:
    """Return labels for the passages of `draw_by_rank`: 1/rank in the first group, then 0, -1, … by group.

    So do Zeng et al. 2022 (CL-DRD), except that their later labels differ; only the labels' order counts in their loss.
    Shape (passages,).

    >>> first = RankGroup(last_rank=2, passages=2)
    >>> label_ranks([first, RankGroup(last_rank=9, passages=1), RankGroup(last_rank=20, passages=2)]).tolist()
    [1.0, 0.5, 0.0, -1.0, -1.0]
    """
    within_first = 1 / np.arange(1, groups[0].passages + 1)
    levels = [np.full(group.passages, -level) for level, group in enumerate(groups[1:])]
    return np.concatenate([within_first, *levels]).astype(np.float32)
