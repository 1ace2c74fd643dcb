"""Which queries a dataset keeps, and in which split: everything is decided by the id, never by chance or order."""

import hashlib
import heapq
import re
from collections.abc import Iterable

from tandem.errors import UserError

# ---- tandem.data.splits
SPLIT = re.compile(r"[a-z][a-z0-9_]*")  # train, dev, test, and further test sets such as dl19
UNLABELLED = "unlabelled"  # the split of queries of which nothing is known
VALIDATED = "dev"  # the split that decides between checkpoints
PRECEDENCE = ("dev", "train")  # what is in a test set is never validated or trained on


def first_splits(judged: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
    """The split of each judged query: the first of the test sets, dev, train whose qrels name it.

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
            splits[query] = min(known, split, key=_rank)
    return splits, len(several)


def order(split: str) -> tuple[int, str]:
    """A key that sorts splits: train, dev, test, then others by name."""
    usual = ("train", "dev", "test")
    return (usual.index(split) if split in usual else len(usual)), split


def _rank(split: str) -> tuple[int, str]:
    """Where a split stands in the order that decides; test sets by name."""
    return (1 + PRECEDENCE.index(split) if split in PRECEDENCE else 0), split


def position(query_id: str) -> float:
    """Where the sha1 of an id lies between 0 and 1: its first 32 bits over 2³²."""
    return int(hashlib.sha1(query_id.encode()).hexdigest()[:8], 16) / 2**32


def dev_from_train(splits: dict[str, str], share: float) -> dict[str, str]:
    """Move the training queries whose id hashes below `share` into the dev split, which must not exist yet."""
    return _moved(splits, share, "train", "dev")


def train_from_test(splits: dict[str, str], share: float) -> dict[str, str]:
    """Move the test queries whose id hashes below `share` into the train split, which must not exist yet.

    Collections in several languages that share ids (XQuAD) are cut alike.
    """
    return _moved(splits, share, "test", "train")


def _moved(splits: dict[str, str], share: float, source: str, target: str) -> dict[str, str]:
    """The splits with a share of the one's queries in the other, which must not exist yet."""
    if target in splits.values():
        key = f"{target}_from_{source}"
        raise UserError(f"{key}: the source has a {target} split of its own; leave {key} out")
    return {q: target if split == source and position(q) < share else split for q, split in splits.items()}


def subset(splits: dict[str, str], most: dict[str, int | None]) -> dict[str, str]:
    """At most so many queries of each split: those whose ids have the lowest sha1, in their old order.

    A larger subset contains every smaller one.
    """
    kept: set[str] = set()
    for split in sorted(set(splits.values())):
        queries = [q for q, s in splits.items() if s == split]
        limit = most.get(split)
        kept.update(queries if limit is None else heapq.nsmallest(limit, queries, key=_sha1))
    return {query: split for query, split in splits.items() if query in kept}


def _sha1(query_id: str) -> str:
    return hashlib.sha1(query_id.encode()).hexdigest()
