"""Splits of queries: their order, which one a query or a file belongs to, and subsets.

Ids decide, never chance or order; of a file its name.
"""

import hashlib
import heapq
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from tandem.config.datasets import UNLABELLED
from tandem.data.reading import strip_packing
from tandem.errors import UserError

_Value = TypeVar("_Value")
SPLIT = re.compile(r"[a-z][a-z0-9_]*")  # train, dev, test, and further test sets such as dl19
LEARNED = frozenset({"train", UNLABELLED})  # splits that models learn from and nobody evaluates
VALIDATED = "dev"  # the split that decides between checkpoints
USUAL_SPLITS = ("train", "dev", "test")
SPLIT_WORDS = {
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "development": "dev", "test": "test",
}  # fmt: skip
_WORD = re.compile(r"[a-z]+\d*|\d+")
# behind test sets: what they contain is never validated or trained on
_PRECEDENCE = {"dev": 1, "train": 2}


def read_split(path: Path) -> str:
    """Return the split whose judgements a file of BEIR's layout holds, by its name.

    A `UserError` for any other name.
    """
    name = strip_packing(path.name)
    split = name.removesuffix(".tsv")
    if split == name or not SPLIT.fullmatch(split):
        allowed = "<split>.tsv, packed or not, in lower case"
        raise UserError(f"{path}: a split's judgements are {allowed}; rename or remove it")
    return split


def group_qrels(paths: Iterable[Path]) -> dict[str, Path]:
    """Split → file of its judgements, in the order of splits; a `UserError` where two files hold one."""
    files: dict[str, Path] = {}
    for path in paths:
        split = read_split(path)
        other = files.setdefault(split, path)
        if other != path:
            raise UserError(f"{path}: split {split} is in {other.name} too; remove one of them")
    return {split: files[split] for split in sorted(files, key=sort_key)}


def split_name(name: str) -> list[str]:
    """Return the words of a path in lower case: `NQ/biencoder-train_v2.json` has nq, biencoder, train, v2, json."""
    return _WORD.findall(name.lower())


def group_by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Split → names of files, by the first word in a name that names a split; without such a word it is `test`."""
    splits: dict[str, list[str]] = {}
    for name in names:
        split = next(
            (SPLIT_WORDS[word] for word in split_name(name) if word in SPLIT_WORDS), "test"
        )
        splits.setdefault(split, []).append(name)
    return {split: splits[split] for split in sorted(splits, key=sort_key)}


def match_by_split(names: Iterable[str]) -> dict[str, str]:
    """Return split → file by its name; a `UserError` where a split would have several."""
    splits = group_by_split(names)
    for split, files in splits.items():
        if len(files) > 1:
            what = f"--data: {files[0]} and {files[1]} are both taken for split {split}"
            raise UserError(f"{what}; name one of them, or say train, dev and test in their names")
    return {split: files[0] for split, files in splits.items()}


def sort_key(split: str) -> tuple[int, str]:
    """Return the key that sorts splits: train, dev, test, then others by name."""
    place = USUAL_SPLITS.index(split) if split in USUAL_SPLITS else len(USUAL_SPLITS)
    return place, split


def count_keys(splits: Iterable[str]) -> list[str]:
    """Return the keys that `counts` may have: passages, and queries and judgements of its splits and the usual."""
    keys = ["passages"]
    for split in sorted({*USUAL_SPLITS, *splits}):
        keys += [split, f"{split}_qrels"]
    return keys


def require_splits(
    key: str, values: Mapping[str, _Value] | None, example: str
) -> Mapping[str, _Value]:
    """Return a mapping by split; refuse a missing or empty one, with `key` and an `example` of values in the error."""
    if not values or not all(map(SPLIT.fullmatch, values)):
        raise UserError(
            f"{key}: {values!r}; at least one of train, dev, test with {example} is needed"
        )
    return values


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


def move_share(
    splits: dict[str, str], share: float, source: str, target: str, most: int | None = None
) -> dict[str, str]:
    """Move the queries of split `source` whose id hashes below `share` into `target`, which must not exist yet.

    A `UserError` where it does, or where no query moves.
    Collections in several languages that share ids (XQuAD) are cut alike.

    Args:
        most: how many are moved at most: those with the lowest sha1; None: all.
    """
    key = f"{target}_from_{source}"
    queries = [query for query, split in splits.items() if split == source]
    if target in splits.values():
        raise UserError(f"{key}: the source has a {target} split of its own; leave {key} out")
    below = [query for query in queries if compute_position(query) < share]
    moved = set(_select_lowest(below, most))
    if queries and not moved:
        raise UserError(
            f"{key} is {share:g}, which none of {len(queries)} {source} queries falls into; raise it"
        )
    return {query: target if query in moved else split for query, split in splits.items()}


def draw_subset(splits: dict[str, str], limits: dict[str, int | None]) -> dict[str, str]:
    """Return at most so many queries of each split: those whose ids have the lowest sha1, in their old order.

    A larger subset contains every smaller one.
    """
    selected: set[str] = set()
    for split in set(splits.values()):
        queries = [q for q, s in splits.items() if s == split]
        selected.update(_select_lowest(queries, limits.get(split)))
    return {query: split for query, split in splits.items() if query in selected}


def _select_lowest(queries: list[str], most: int | None) -> list[str]:
    """Return at most so many queries, those whose ids have the lowest sha1; None: all."""
    return queries if most is None else heapq.nsmallest(most, queries, key=_compute_sha1)
