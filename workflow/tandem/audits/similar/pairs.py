"""Pairs of similar queries as a table, its counts and some of it to look at."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tandem.audits.similar.asked import Asked
from tandem.audits.similar.nearest import Array
from tandem.data.splits import order

SCHEMA = pa.schema(
    [
        ("train_query_id", pa.string()),
        ("other_query_id", pa.string()),
        ("split", pa.string()),
        ("score", pa.float32()),
        ("similar", pa.bool_()),
        ("same", pa.bool_()),
        ("proposal", pa.float32()),
    ]
)
BINS, EXAMPLES, CHARACTERS = 20, 12, 300


@dataclass(frozen=True)
class Pairs:
    """Proposed pairs; every array has the shape (pairs,).

    Attributes:
        other: position among the dev and test queries.
        train: position among the training queries.
        proposal: similarity by which they were proposed.
        score: similarity that decides: the judge's, else the proposal.
        same: whether both are the same words.
        threshold: a pair is similar above it, or where both are the same words.
    """

    other: Array
    train: Array
    proposal: Array
    score: Array
    same: Array
    threshold: float

    @property
    def similar(self) -> Array:
        """Which pairs count as similar."""
        made: Array = (self.score.astype(np.float64) > self.threshold) | self.same
        return made


def table(pairs: Pairs, others: Asked, train: Asked) -> pa.Table:
    """Rows of `SCHEMA` by split, other query, falling score and training query."""
    columns: dict[str, Any] = {
        "train_query_id": [train.ids[at] for at in pairs.train],
        "other_query_id": [others.ids[at] for at in pairs.other],
        "split": [others.splits[at] for at in pairs.other],
        "score": pairs.score,
        "similar": pairs.similar,
        "same": pairs.same,
        "proposal": pairs.proposal,
    }
    made = pa.table({name: pa.array(columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
    keys = zip(columns["split"], columns["other_query_id"], -pairs.score, columns["train_query_id"], strict=True)
    ordered = sorted(enumerate(keys), key=lambda one: (order(one[1][0]), *one[1][1:]))
    return made.take(pa.array([at for at, _ in ordered], pa.int64()))


def summary(pairs: Pairs, others: Asked, train: Asked, depth: int) -> dict[str, Any]:
    """How many training queries are similar to how many of the others, as DuReader-retrieval §2.3 counts.

    `saturated` counts the other queries with `depth` similar training queries or more: a greater depth may find more.
    """
    similar = pairs.similar
    found = np.bincount(pairs.other[similar], minlength=len(others))
    splits = np.array(others.splits, object)
    by_split = {}
    for split in dict.fromkeys(others.splits):
        mine = splits == split
        known = np.unique(pairs.train[similar & mine[pairs.other]])
        by_split[split] = {**_share(int((found[mine] > 0).sum()), int(mine.sum())), "train_similar": len(known)}
    return {
        "train": _share(len(np.unique(pairs.train[similar])), len(train)),
        "others": _share(int((found > 0).sum()), len(others)),
        "splits": by_split,
        "pairs": {"proposed": len(similar), "similar": int(similar.sum()), "same": int(pairs.same.sum())},
        "saturated": int((found >= depth).sum()),
        "histogram": {
            "edges": [round(at / BINS, 6) for at in range(BINS + 1)],
            "pairs": np.histogram(pairs.score, BINS, (0, 1))[0].tolist(),
        },
    }


def _share(similar: int, queries: int) -> dict[str, Any]:
    """A number of queries and which part of all it is, in percent."""
    return {"queries": queries, "similar": similar, "percent": round(100 * similar / queries, 2) if queries else None}


def examples(pairs: Pairs, others: Asked, train: Asked) -> dict[str, list[dict[str, Any]]]:
    """Pairs to look at: the most similar that are not the same words, and those on either side of the threshold."""
    ranked = np.lexsort((pairs.train, pairs.other, -pairs.score))
    ranked = ranked[~pairs.same[ranked]]
    above, below = ranked[pairs.similar[ranked]], ranked[~pairs.similar[ranked]]
    chosen = {"most similar": above[:EXAMPLES], "just similar": above[-EXAMPLES:], "just not": below[:EXAMPLES]}
    return {
        name: [
            {
                "split": others.splits[pairs.other[at]],
                "other_query_id": others.ids[pairs.other[at]],
                "other": others.texts[pairs.other[at]][:CHARACTERS],
                "train_query_id": train.ids[pairs.train[at]],
                "train": train.texts[pairs.train[at]][:CHARACTERS],
                "score": round(float(pairs.score[at]), 4),
            }
            for at in rows
        ]
        for name, rows in chosen.items()
    }
