"""Training lists from a query's pool: undenoised (RocketQAv2 §3.3), denoised or labelled by a judge (RocketQA §3.2).

A pool is the query's positives and the passages of a run that may serve as negatives.
"""

from dataclasses import dataclass, field

import numpy as np

from tandem.config.models import BelowPositive, Denoise
from tandem.data.text import hash_token_trigrams, measure_similarity
from tandem.models.ragged import Ragged
from tandem.retrieval.exact import Array

_NO_ROWS = np.empty(0, np.int64)


@dataclass
class QueryPool:
    """Describe what one training query's lists are drawn from.

    Attributes:
        query: row of the query.
        positives: rows of its relevant passages.
        rows, ranks, scores: the run's passages in the window, without positives and their duplicates; rank from 1.
        positive_scores: the run's scores of `positives`, NaN for those that it lacks.
        beyond: rows, ranks and scores of the backfill window.
        dropped: how many passages of the window each rule took out.
        judged, judged_positives: the judge's probabilities for `rows` and `positives`, NaN until there is a judge.
        far: which of `rows` may be negatives; all until `keep_below` leaves out those too near a positive.
        barred_as: why the others may not be, in `dropped`.
        labelled: origin of the label of `positives`: `qrels`, `answer` or `rank`.
        source: where `rows` come from: `run` or `random`.
    """

    query: int
    positives: Array
    rows: Array
    ranks: Array
    scores: Array
    positive_scores: Array
    beyond: tuple[Array, Array, Array]
    dropped: dict[str, int]
    judged: Array = field(init=False)
    judged_positives: Array = field(init=False)
    far: Array = field(init=False)
    barred_as: str = "too near a positive"
    labelled: str = "qrels"
    source: str = "run"

    def __post_init__(self) -> None:
        self.judged = fill_unknown(len(self.rows))
        self.judged_positives = fill_unknown(len(self.positives))
        self.far = np.ones(len(self.rows), bool)


def fill_unknown(count: int) -> Array:
    """`count` times NaN: scores or probabilities that nobody computed."""
    return np.full(count, np.nan, np.float32)


def make_pool(
    query: int,
    positives: Array,
    run: tuple[Array, Array],
    window: tuple[int, int],
    backfill: tuple[int, int] | None,
    texts: Ragged,
    barred: Array | None = None,
    near_duplicates: float | None = None,
    scored: int | None = None,
) -> QueryPool:
    """Take the ranks of a window from a run, without positives and without passages of the same text as one.

    Args:
        run: the run's passage rows and scores, best first.
        window: first and last rank that may become negatives, from 1, both included.
        backfill: the ranks to fill up from where too few are left, likewise.
        texts: token ids of all passages; equal ones are a duplicate.
        barred: rows that are neither positive nor negative, see `PositiveLabels.barred`; None: there are none.
        near_duplicates: similarity (Jaccard, of token trigrams) from which a passage is a duplicate too.
        scored: the run's last rank whose score means something; None: all.
    """
    rows, scores = run
    ranks = np.arange(1, len(rows) + 1)
    relevant = np.isin(rows, positives)
    duplicate = _find_duplicates(rows, positives, texts, near_duplicates) & ~relevant
    neither = np.isin(rows, [] if barred is None else barred) & ~relevant & ~duplicate
    reasons = {"known positive": relevant, "duplicate of a positive": duplicate}
    reasons |= {"neither positive nor negative": neither} if neither.any() else {}
    keep = ~relevant & ~duplicate & ~neither
    inside = (ranks >= window[0]) & (ranks <= window[1])
    first, last = backfill or (1, 0)
    outside = keep & (ranks >= first) & (ranks <= last) & ~inside
    positive_scores = fill_unknown(len(positives))
    at, places = np.nonzero(positives[:, None] == rows[:scored])
    positive_scores[at] = scores[places]
    return QueryPool(
        query=query,
        positives=positives,
        rows=rows[keep & inside],
        ranks=ranks[keep & inside],
        scores=scores[keep & inside],
        positive_scores=positive_scores,
        beyond=(rows[outside], ranks[outside], scores[outside]),
        dropped={name: int((why & inside).sum()) for name, why in reasons.items()},
    )


def keep_below(pool: QueryPool, below: BelowPositive, judged: bool) -> None:
    """Bar passages that score too near a positive from being negatives: NV-Retriever (arXiv 2407.15831) §3.

    A negative scores at most s - (1 - share) |s|, which is share · s for s > 0 (TopK-PercPos), or s - margin
    (TopK-MarginPos). s is the lowest score of the positives that have one, as in sentence-transformers'
    `mine_hard_negatives`. Where none has one, the run ranks all passages above the positives: all are barred. If
    `judged`, the judge's probabilities are compared instead of the run's scores.
    """
    own, positives = (
        (pool.judged, pool.judged_positives) if judged else (pool.scores, pool.positive_scores)
    )
    lowest = positives[np.isfinite(positives)].min(initial=np.inf).astype(np.float64)
    if np.isinf(lowest):
        pool.barred_as = "no positive has a score"
        limit = -np.inf
    else:
        gap = below.margin if below.share is None else abs(lowest) * (1 - below.share)
        limit = lowest - gap
    pool.far = own <= limit
    pool.dropped[pool.barred_as] = int((~pool.far).sum())
    if not judged:
        far = pool.beyond[2] <= limit
        rows, ranks, scores = pool.beyond
        pool.beyond = rows[far], ranks[far], scores[far]


def _find_duplicates(rows: Array, positives: Array, texts: Ragged, near: float | None) -> Array:
    """Return whether each row has the tokens of a positive, or shares enough of their trigrams; see `make_pool`."""
    own = [texts[row] for row in positives.tolist()]
    if near is None:
        contents = {ids.tobytes() for ids in own}
        duplicate = np.zeros(len(rows), bool)
        # Few are as long as a positive; the others are not read.
        as_long = np.flatnonzero(np.isin(texts.lengths(rows), [len(ids) for ids in own]))
        duplicate[as_long] = [texts[row].tobytes() in contents for row in rows[as_long].tolist()]
        return duplicate
    return find_near_copies(rows, positives, texts, near)


def find_near_copies(rows: Array, positives: Array, texts: Ragged, threshold: float) -> Array:
    """Return for each row whether its text is nearly that of a positive, shape (rows,).

    Near means that the Jaccard similarity of their token trigrams is at least `threshold`; no sketch, so it is exact.
    """
    originals = [hash_token_trigrams(texts[row]) for row in positives.tolist()]
    copies = np.zeros(len(rows), bool)
    for place, row in enumerate(rows.tolist()):
        grams = hash_token_trigrams(texts[row])
        copies[place] = any(
            measure_similarity(grams, original) >= threshold for original in originals
        )
    return copies


@dataclass(frozen=True)
class DrawnList:
    """Describe one list as rows of candidates.parquet, positives first.

    Attributes:
        kind: `undenoised` or `denoised`.
        query, rows: of the query and of passages.
        labels: 1 for positives.
        ranks: rank in the run, 0 for a passage that was not taken from it.
        scores: the run's scores, NaN for none.
        judged: the judge's probabilities, NaN for none.
        sources: of a positive `qrels`, `answer` (it holds one), `rank` or `judge`; of a negative `run`, or `random`
            without a run.
    """

    kind: str
    query: int
    rows: Array
    labels: Array
    ranks: Array
    scores: Array
    judged: Array
    sources: list[str]


def choose_negatives(
    count: int, size: int | None, rng: np.random.Generator, first: bool = False
) -> Array:
    """Indices of `size` of `count` things in their order, drawn without replacement, or the first; all for None."""
    if size is None or size >= count:
        return np.arange(count)
    return np.arange(size) if first else np.sort(rng.permutation(count)[:size])


def draw_undenoised(
    pool: QueryPool, negatives: int | None, rng: np.random.Generator, first: bool = False
) -> DrawnList:
    """Return the known positives and passages of the window: random ones, or the first."""
    far = np.flatnonzero(pool.far)
    return _assemble("undenoised", pool, far[choose_negatives(len(far), negatives, rng, first)])


def draw_denoised(
    pool: QueryPool,
    negatives: int | None,
    denoise: Denoise,
    rng: np.random.Generator,
    first: bool = False,
) -> DrawnList:
    """Return the known positives, those the judge is sure of, and sure negatives: random ones, or the first.

    A passage of the window is a negative if its probability is below `negative_below` and, where `positive_above` is
    set, a positive if above it. Too few negatives are filled up at random from the backfill window, unjudged (as
    RocketQA's released scripts do from ranks 51 to 1,000).
    """
    below = pool.judged < denoise.negative_below
    certain = np.flatnonzero(below & pool.far)
    accepted = (
        _NO_ROWS
        if denoise.positive_above is None
        else np.flatnonzero(pool.judged > denoise.positive_above)
    )
    # Each passage has one reason: it is accepted, else barred, else unsure.
    far = int(pool.far[accepted].sum())
    pool.dropped["accepted as positive"] = len(accepted)
    if pool.barred_as in pool.dropped:
        pool.dropped[pool.barred_as] -= len(accepted) - far
    pool.dropped["not surely negative"] = int((pool.far & ~below).sum()) - far
    chosen = certain[choose_negatives(len(certain), negatives, rng, first)]
    backfill = _NO_ROWS
    if negatives is not None and len(chosen) < negatives and len(pool.beyond[0]):
        backfill = choose_negatives(len(pool.beyond[0]), negatives - len(chosen), rng)
        pool.dropped["backfilled (negative)"] = -len(backfill)
    return _assemble("denoised", pool, chosen, accepted, backfill)


def judge_labelled(
    pool: QueryPool,
    negatives: int | None,
    denoise: Denoise,
    rng: np.random.Generator,
    first: bool = False,
) -> DrawnList | None:
    """Positive and negatives by the judge alone, for a query without labels (RocketQA's fourth step).

    The passage with the highest probability, of equals the first, is the positive if its probability is above
    `positive_above`; negatives are below `negative_below`. None where no passage is good enough.
    """
    assert denoise.positive_above is not None
    if not len(pool.judged) or not pool.judged.max() > denoise.positive_above:
        return None
    best = np.array([pool.judged.argmax()])
    certain = np.flatnonzero(pool.judged < denoise.negative_below)
    certain = certain[certain != best]
    pool.dropped["not surely negative"] = len(pool.rows) - len(certain) - 1
    pool.dropped["accepted as positive"] = 1
    return _assemble(
        "denoised", pool, certain[choose_negatives(len(certain), negatives, rng, first)], best
    )


def _assemble(
    kind: str,
    pool: QueryPool,
    chosen: Array,
    accepted: Array = _NO_ROWS,
    backfill: Array = _NO_ROWS,
) -> DrawnList:
    """Put a list together: the qrels' positives, the judge's, the chosen negatives, and the backfill's."""
    taken = np.concatenate([accepted, chosen])
    known = len(pool.positives)
    window = zip((pool.rows, pool.ranks, pool.scores), pool.beyond, strict=True)
    rows, ranks, scores = (
        np.concatenate([inside[taken], beyond[backfill]]) for inside, beyond in window
    )
    positives = known + len(accepted)
    negatives = len(chosen) + len(backfill)
    judged = [pool.judged_positives, pool.judged[taken], fill_unknown(len(backfill))]
    return DrawnList(
        kind=kind,
        query=pool.query,
        rows=np.concatenate([pool.positives, rows]),
        labels=np.array([1] * positives + [0] * negatives, np.int8),
        ranks=np.concatenate([np.zeros(known, np.int32), ranks]).astype(np.int32),
        scores=np.concatenate([fill_unknown(known), scores]).astype(np.float32),
        judged=np.concatenate(judged).astype(np.float32),
        sources=[pool.labelled] * known + ["judge"] * len(accepted) + [pool.source] * negatives,
    )
