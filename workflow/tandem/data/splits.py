"""Order splits of queries, choose the split of each query, and draw subsets.

Subsets depend on the queries' ids, never on chance or order.
"""

import hashlib
import heapq
import re
from collections.abc import Iterable

from tandem.config.datasets import UNLABELLED

SPLIT = re.compile(r"[a-z][a-z0-9_]*")  # train, dev, test, and further test sets such as dl19
LEARNED = frozenset({"train", UNLABELLED})  # splits that models learn from and nobody evaluates
VALIDATED = "dev"  # the split that decides between checkpoints
USUAL_SPLITS = ("train", "dev", "test")
# after test sets, whose content is never validated or trained on
_PRECEDENCE = {"dev": 1, "train": 2}


def sort_key(split: str) -> tuple[int, str]:
    """Return the key that sorts splits: train, dev, test, then others by name."""
    place = USUAL_SPLITS.index(split) if split in USUAL_SPLITS else len(USUAL_SPLITS)
    return place, split


def count_keys(splits: Iterable[str]) -> list[str]:
    """Return the keys that `counts` may have: passages, and queries and judgements of its and the usual splits."""
    keys = ["passages"]
    for split in sorted({*USUAL_SPLITS, *splits}):
        keys += [split, f"{split}_qrels"]
    return keys


def choose_splits(judged: Iterable[tuple[str, str]]) -> tuple[dict[str, str], set[str]]:
    """Return the split of each query by (query id, split) of every judgement: the first of the test sets, dev, train.

    Returns:
        Query id → split, and the queries that several splits name.
    """

    def rank(split: str) -> tuple[int, str]:
        return _PRECEDENCE.get(split, 0), split

    splits: dict[str, str] = {}
    several: set[str] = set()
    for query, split in judged:
        known = splits.setdefault(query, split)
        if known != split:
            several.add(query)
            splits[query] = min(known, split, key=rank)
    return splits, several


def compute_position(query_id: str) -> float:
    """Return where the sha1 of an id lies between 0 and 1: its first 32 bits over 2³²."""
    return int(_compute_sha1(query_id)[:8], 16) / 2**32


def _compute_sha1(query_id: str) -> str:
    return hashlib.sha1(query_id.encode()).hexdigest()


def draw_subset(splits: dict[str, str], limits: dict[str, int | None]) -> dict[str, str]:
    """Return a limited number of queries of each split: those whose ids have the lowest sha1, in their old order.

    A larger subset contains every smaller one.
    """
    selected: set[str] = set()
    for split in set(splits.values()):
        queries = [q for q, s in splits.items() if s == split]
        selected.update(select_lowest(queries, limits.get(split)))
    return {query: split for query, split in splits.items() if query in selected}


def select_lowest(queries: list[str], most: int | None) -> list[str]:
    """Return at most so many queries, those whose ids have the lowest sha1; None: all."""
    return queries if most is None else heapq.nsmallest(most, queries, key=_compute_sha1)
