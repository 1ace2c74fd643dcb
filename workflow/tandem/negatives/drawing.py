"""Draw training lists from a query's pool: its positives, and the passages of a run that may serve as negatives.

Lists are undenoised (RocketQAv2 §3.3), denoised by a judge, or labelled by a judge (RocketQA §3.2).
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
    """Hold the passages from which one training query's lists are drawn.

    Attributes:
        query: row of the query.
        positives: rows of its relevant passages.
        rows, ranks, scores: the run's passages in the window, without positives and their duplicates; ranks count
            from 1.
        positive_scores: the run's scores of `positives`, NaN for passages that it lacks.
        beyond: rows, ranks and scores of the passages in the backfill window.
        dropped: how many passages of the window each rule removed.
        judged, judged_positives: the judge's probabilities of `rows` and `positives`; NaN before they are judged.
        far: True for `rows` that may be negatives; `keep_below` sets it to False for those too near a positive.
        barred_as: the reason, as a key of `dropped`, why other `rows` may not be negatives.
        labelled: origin of the label of `positives`: `qrels`, `answer` or `rank`.
        source: where `rows` come from: `run`, `random`, or the name of a plugin's source.
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
    """Return NaN `count` times, for scores or probabilities that have not been computed."""
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
    """Make a query's pool from the ranks of a window of a run, without positives and passages with a positive's text.

    Args:
        run: the run's passage rows and scores, best first.
        window: first and last rank of the window; ranks count from 1, and both are included.
        backfill: first and last rank of the passages that fill up a list with too few negatives.
        texts: token ids of all passages; passages with the same ids are duplicates.
        barred: rows that are neither positive nor negative, see `PositiveLabels.barred`; None: there are none.
        near_duplicates: Jaccard similarity of token trigrams from which a passage is a duplicate, too.
        scored: the last rank of the run whose score has a meaning; None: all scores have one.
    """
    rows, scores = run
    ranks = np.arange(1, len(rows) + 1)
    relevant = np.isin(rows, positives)
    duplicate = _find_duplicates(rows, positives, texts, near_duplicates) & ~relevant
    neither = np.isin(rows, [] if barred is None else barred) & ~relevant & ~duplicate
    reasons = {"known positive": relevant, "duplicate of a positive": duplicate}
    if neither.any():
        reasons["neither positive nor negative"] = neither
    keep = ~relevant & ~duplicate & ~neither
    inside = (ranks >= window[0]) & (ranks <= window[1])
    first, last = backfill or (1, 0)
    outside = keep & (ranks >= first) & (ranks <= last) & ~inside
    positive_scores = fill_unknown(len(positives))
    found, places = np.nonzero(positives[:, None] == rows[:scored])
    positive_scores[found] = scores[places]
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
    `mine_hard_negatives`. If none has a score, the run ranks all passages above the positives, and all are barred.

    Args:
        judged: compare the judge's probabilities instead of the run's scores.
    """
    scores = pool.judged if judged else pool.scores
    positives = pool.judged_positives if judged else pool.positive_scores
    lowest = positives[np.isfinite(positives)].min(initial=np.inf).astype(np.float64)
    if np.isinf(lowest):
        pool.barred_as = "no positive has a score"
        limit = -np.inf
    else:
        gap = below.margin if below.share is None else abs(lowest) * (1 - below.share)
        limit = lowest - gap
    pool.far = scores <= limit
    pool.dropped[pool.barred_as] = int((~pool.far).sum())
    if not judged:
        rows, ranks, scores = pool.beyond
        far = scores <= limit
        pool.beyond = rows[far], ranks[far], scores[far]


def _find_duplicates(rows: Array, positives: Array, texts: Ragged, near: float | None) -> Array:
    """Return whether each row is a duplicate of a positive; see `make_pool`."""
    own = [texts[row] for row in positives.tolist()]
    if near is None:
        contents = {ids.tobytes() for ids in own}
        duplicate = np.zeros(len(rows), bool)
        # Only texts as long as a positive are read: there are few.
        as_long = np.flatnonzero(np.isin(texts.lengths(rows), [len(ids) for ids in own]))
        duplicate[as_long] = [texts[row].tobytes() in contents for row in rows[as_long].tolist()]
        return duplicate
    return find_near_copies(rows, positives, texts, near)


def find_near_copies(rows: Array, positives: Array, texts: Ragged, threshold: float) -> Array:
    """Return whether each row's text is nearly that of a positive, shape (rows,).

    It counts as such if the Jaccard similarity of their token trigrams, computed exactly, is at least `threshold`.
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
    """Hold one list in columns of candidates.parquet, positives first.

    Attributes:
        kind: `undenoised` or `denoised`.
        query: row of the query.
        rows: rows of the passages.
        labels: 1 for positives, 0 for negatives.
        ranks: ranks in the run, 0 for passages that were not taken from it.
        scores: the run's scores, NaN where there is none.
        judged: the judge's probabilities, NaN where there is none.
        sources: for a positive `qrels`, `answer` (it contains one), `rank` or `judge`; for a negative the list's
            `source`.
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
    """Return `size` of the indices below `count`, in ascending order; all of them if `size` is None.

    They are drawn without replacement, or are the first ones.
    """
    if size is None or size >= count:
        return np.arange(count)
    return np.arange(size) if first else np.sort(rng.permutation(count)[:size])


def draw_undenoised(
    pool: QueryPool, negatives: int | None, rng: np.random.Generator, first: bool = False
) -> DrawnList:
    """Return a list of the known positives, with random or the first passages of the window as negatives."""
    far = np.flatnonzero(pool.far)
    return _assemble("undenoised", pool, far[choose_negatives(len(far), negatives, rng, first)])


def draw_denoised(
    pool: QueryPool,
    negatives: int | None,
    denoise: Denoise,
    rng: np.random.Generator,
    first: bool = False,
) -> DrawnList:
    """Return a list of the known positives, the judge's positives, and random or the first sure negatives.

    A passage of the window is a negative if its probability is below `negative_below`, and a positive if it is above
    `positive_above`, where that is set. If there are too few negatives, random passages of the backfill window are
    added without judging them (as RocketQA's released scripts do from ranks 51 to 1,000).
    """
    below = pool.judged < denoise.negative_below
    certain = np.flatnonzero(below & pool.far)
    accepted = (
        _NO_ROWS
        if denoise.positive_above is None
        else np.flatnonzero(pool.judged > denoise.positive_above)
    )
    # A dropped passage is counted once: as accepted, else as barred, else as unsure.
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
    """Return a list whose positive and negatives are chosen only by the judge, for a query without labels.

    This is RocketQA's fourth step. The positive is the first passage with the highest probability, which must be above
    `positive_above`; negatives are below `negative_below`. None if no passage can be the positive.
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
    """Make a list of the known positives, those that the judge accepted, the chosen negatives, and the backfill.

    Args:
        chosen, accepted: indices of the window's passages.
        backfill: indices of the passages in `pool.beyond`.
    """
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
