"""One query's pool: its positives and the passages of a run that may serve as negatives."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tandem.models.ragged import Ids


@dataclass
class Pool:
    """What one training query offers.

    Attributes:
        query: row of the query.
        positives: rows of its relevant passages.
        rows, ranks, scores: the run's passages in the window, without positives and their duplicates; rank from 1.
        beyond: the same three for the ranks of the backfill window.
        dropped: how many passages of the window each rule took out.
        judged, judged_positives: the judge's probabilities for `rows` and `positives`, once there is a judge.
        labelled: whose word makes `positives` such: `qrels` or `answer`.
        source: where `rows` come from: `run` or `random`.
    """

    query: int
    positives: Ids
    rows: Ids
    ranks: Ids
    scores: Ids
    beyond: tuple[Ids, Ids, Ids]
    dropped: dict[str, int] = field(default_factory=dict)
    judged: Ids | None = None
    judged_positives: Ids | None = None
    labelled: str = "qrels"
    source: str = "run"


def make_pool(
    query: int,
    positives: Ids,
    run: tuple[Ids, Ids],
    window: tuple[int, int],
    backfill: tuple[int, int] | None,
    text: Callable[[int], bytes],
    barred: Ids | None = None,
) -> Pool:
    """Take the ranks of a window from a run, without positives and without passages that say the same as one.

    Args:
        query: row of the query.
        positives: rows of its relevant passages.
        run: the run's passage rows and scores, best first.
        window: first and last rank that may become negatives, from 1, both included.
        backfill: the ranks to fill up from where too few are left, likewise; None for none.
        text: a passage's content by row; equal content is a duplicate.
        barred: rows that are neither positive nor negative: passages that match the answer literally (RocketQA's
            `qrels.train.addition.tsv`, or found by answers).
    """
    rows, scores = run
    ranks = np.arange(1, len(rows) + 1)
    relevant = np.isin(rows, positives)
    contents = {text(int(row)) for row in positives}
    duplicate = np.array([text(int(row)) in contents for row in rows], bool) & ~relevant
    literal = np.isin(rows, [] if barred is None else barred) & ~relevant & ~duplicate
    keep = ~relevant & ~duplicate & ~literal
    inside = (ranks >= window[0]) & (ranks <= window[1])
    first, last = backfill or (1, 0)
    outside = keep & (ranks >= first) & (ranks <= last) & ~inside
    return Pool(
        query=query,
        positives=positives,
        rows=rows[keep & inside],
        ranks=ranks[keep & inside],
        scores=scores[keep & inside],
        beyond=(rows[outside], ranks[outside], scores[outside]),
        dropped={
            "known positive": int((relevant & inside).sum()),
            "duplicate of a positive": int((duplicate & inside).sum()),
        }
        | ({"literal match": int((literal & inside).sum())} if literal.any() else {}),
    )
