"""Training lists from a query's pool: undenoised (RocketQAv2 §3.3), denoised or labelled by a judge (RocketQA §3.2).

A pool is the query's positives and the passages of a run that may serve as negatives.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tandem.data.near_duplicates import similarity, token_trigrams
from tandem.models.ragged import Ids
from tandem.stages.negatives import Denoising


@dataclass
class Pool:
    """What one training query's lists are drawn from.

    Attributes:
        query: row of the query.
        positives: rows of its relevant passages.
        rows, ranks, scores: the run's passages in the window, without positives and their duplicates; rank from 1.
        beyond: the same three for the ranks of the backfill window.
        dropped: how many passages of the window each rule took out.
        judged, judged_positives: the judge's probabilities for `rows` and `positives`, once there is a judge.
        labelled: origin of the label of `positives`: `qrels` or `answer`.
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
    tokens: Callable[[int], Ids],
    barred: Ids | None = None,
    near_duplicates: float | None = None,
) -> Pool:
    """Take the ranks of a window from a run, without positives and without passages of the same text as one.

    Args:
        run: the run's passage rows and scores, best first.
        window: first and last rank that may become negatives, from 1, both included.
        backfill: the ranks to fill up from where too few are left, likewise.
        tokens: a passage's token ids by row; equal ones are a duplicate.
        barred: rows that are neither positive nor negative: passages that match the answer literally (RocketQA's
            `qrels.train.addition.tsv`, or found by answers).
        near_duplicates: similarity (Jaccard, of token trigrams) from which a passage is a duplicate too.
    """
    rows, scores = run
    ranks = np.arange(1, len(rows) + 1)
    relevant = np.isin(rows, positives)
    duplicate = _duplicates(rows, positives, tokens, near_duplicates) & ~relevant
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


def _duplicates(rows: Ids, positives: Ids, tokens: Callable[[int], Ids], near: float | None) -> Ids:
    """Whether each row has the tokens of a positive, or shares enough of their trigrams; see `make_pool`."""
    own = [tokens(int(row)) for row in positives]
    if near is None:
        contents = {ids.tobytes() for ids in own}
        return np.array([tokens(int(row)).tobytes() in contents for row in rows], bool)
    sets = [token_trigrams(ids) for ids in own]
    grams = (token_trigrams(tokens(int(row))) for row in rows)
    return np.array([any(similarity(each, other) >= near for other in sets) for each in grams], bool)


@dataclass(frozen=True)
class TrainingList:
    """One list as rows of candidates.parquet, positives first.

    Attributes:
        kind: `undenoised` or `denoised`.
        query: row of the query.
        rows: passage rows.
        labels: 1 for positives.
        ranks: rank in the run, 0 for a passage that was not taken from it.
        scores: the run's scores, NaN for none.
        judged: the judge's probabilities, NaN for none.
        sources: of a positive `qrels`, `answer` (it holds one) or `judge`; of a negative `run`, or `random` without a
            run.
    """

    kind: str
    query: int
    rows: Ids
    labels: Ids
    ranks: Ids
    scores: Ids
    judged: Ids
    sources: list[str]


def choose(count: int, size: int | None, rng: np.random.Generator, first: bool = False) -> Ids:
    """Indices of `size` of `count` things in their order, drawn without replacement, or the first; all for None."""
    if size is None or size >= count:
        return np.arange(count)
    return np.arange(size) if first else np.sort(rng.permutation(count)[:size])


def undenoised(pool: Pool, negatives: int | None, rng: np.random.Generator, first: bool = False) -> TrainingList:
    """The known positives and passages of the window: random ones, or the first."""
    chosen = choose(len(pool.rows), negatives, rng, first)
    judged = None if pool.judged is None else pool.judged[chosen]
    return _assemble("undenoised", pool, (pool.rows, pool.ranks, pool.scores), chosen, judged)


def denoised(
    pool: Pool, negatives: int | None, denoise: Denoising, rng: np.random.Generator, first: bool = False
) -> TrainingList:
    """The known positives, those the judge is sure of, and negatives the judge is sure of: random ones, or the first.

    A passage of the window is a negative if its probability is below `negative_below` and, where `positive_above` is
    set, a positive if above it. Too few negatives are filled up at random from the backfill window, unjudged (as
    RocketQA's released scripts do from ranks 51 to 1,000).
    """
    assert pool.judged is not None
    certain = np.flatnonzero(pool.judged < denoise.negative_below)
    above = denoise.positive_above
    accepted = np.flatnonzero(pool.judged > above) if above is not None else np.empty(0, np.int64)
    pool.dropped["not surely negative"] = len(pool.rows) - len(certain) - len(accepted)
    pool.dropped["accepted as positive"] = len(accepted)
    chosen = certain[choose(len(certain), negatives, rng, first)]
    rows, ranks, scores = pool.rows, pool.ranks, pool.scores
    judged = pool.judged
    if negatives is not None and len(chosen) < negatives and len(pool.beyond[0]):
        extra = choose(len(pool.beyond[0]), negatives - len(chosen), rng)
        pool.dropped["backfilled (negative)"] = -len(extra)
        chosen = np.concatenate([chosen, len(rows) + extra])
        rows, ranks, scores = (np.concatenate([a, b]) for a, b in zip((rows, ranks, scores), pool.beyond, strict=True))
        judged = np.concatenate([judged, np.full(len(pool.beyond[0]), np.nan, np.float32)])
    return _assemble("denoised", pool, (rows, ranks, scores), chosen, judged[chosen], accepted)


def judge_labelled(
    pool: Pool, negatives: int | None, denoise: Denoising, rng: np.random.Generator, first: bool = False
) -> TrainingList | None:
    """Positive and negatives by the judge alone, for a query without labels (RocketQA's fourth step).

    The passage with the highest probability, of equals the first, is the positive if its probability is above
    `positive_above`; negatives are below `negative_below`. None where no passage is good enough.
    """
    assert pool.judged is not None
    assert denoise.positive_above is not None
    if not len(pool.judged) or not pool.judged.max() > denoise.positive_above:
        return None
    best = np.array([pool.judged.argmax()])
    certain = np.flatnonzero(pool.judged < denoise.negative_below)
    certain = certain[certain != best]
    pool.dropped["not surely negative"] = len(pool.rows) - len(certain) - 1
    pool.dropped["accepted as positive"] = 1
    chosen = certain[choose(len(certain), negatives, rng, first)]
    return _assemble("denoised", pool, (pool.rows, pool.ranks, pool.scores), chosen, pool.judged[chosen], best)


def _assemble(
    kind: str, pool: Pool, run: tuple[Ids, Ids, Ids], chosen: Ids, judged: Ids | None, accepted: Ids | None = None
) -> TrainingList:
    """Positives of the qrels, then those of the judge, then the chosen negatives."""
    accepted = np.empty(0, np.int64) if accepted is None else accepted
    known, more, less = len(pool.positives), len(accepted), len(chosen)
    nothing = np.full(known, np.nan, np.float32)
    taken = np.concatenate([accepted, chosen])
    probabilities = np.full(known + more + less, np.nan, np.float32)
    if judged is not None and pool.judged is not None:
        of_known = nothing if pool.judged_positives is None else pool.judged_positives
        probabilities = np.concatenate([of_known, pool.judged[accepted], judged]).astype(np.float32)
    return TrainingList(
        kind=kind,
        query=pool.query,
        rows=np.concatenate([pool.positives, run[0][taken]]),
        labels=np.array([1] * (known + more) + [0] * less, np.int8),
        ranks=np.concatenate([np.zeros(known, np.int32), run[1][taken]]).astype(np.int32),
        scores=np.concatenate([nothing, run[2][taken]]).astype(np.float32),
        judged=probabilities,
        sources=[pool.labelled] * known + ["judge"] * more + [pool.source] * less,
    )
