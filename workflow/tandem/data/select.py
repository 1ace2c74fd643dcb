"""Which queries a dataset keeps, and in which split: everything is decided by the id, never by chance or order."""

import hashlib
import heapq
from collections.abc import Iterable

from tandem.data.collection import SPLITS
from tandem.errors import UserError

PRECEDENCE = ("test", "dev", "train")  # a test query is never trained on


def first_splits(judged: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
    """The split of each judged query: the first of test, dev, train whose qrels name it.

    Args:
        judged: (query id, split) of every judgement.
    Returns:
        Query id → split, and the number of queries that several splits name.
    """
    splits: dict[str, str] = {}
    several: set[str] = set()
    for query, split in judged:
        known = splits.setdefault(query, split)
        if known != split:
            several.add(query)
            splits[query] = min(known, split, key=PRECEDENCE.index)
    return splits, len(several)


def position(query_id: str) -> float:
    """Where the sha1 of an id lies between 0 and 1: its first 32 bits over 2³²."""
    return int(hashlib.sha1(query_id.encode()).hexdigest()[:8], 16) / 2**32


def dev_from_train(splits: dict[str, str], share: float) -> dict[str, str]:
    """Move the training queries whose id hashes below `share` into the dev split, which must not exist yet."""
    if "dev" in splits.values():
        raise UserError("dev_from_train: the source has a dev split of its own; leave dev_from_train out")
    return {q: "dev" if split == "train" and position(q) < share else split for q, split in splits.items()}


def subset(splits: dict[str, str], most: dict[str, int | None]) -> dict[str, str]:
    """At most so many queries of each split: those whose ids have the lowest sha1, in their old order.

    A larger subset contains every smaller one.
    """
    kept: set[str] = set()
    for split in SPLITS:
        queries = [q for q, s in splits.items() if s == split]
        limit = most[split]
        kept.update(queries if limit is None else heapq.nsmallest(limit, queries, key=_sha1))
    return {query: split for query, split in splits.items() if query in kept}


def _sha1(query_id: str) -> str:
    return hashlib.sha1(query_id.encode()).hexdigest()
