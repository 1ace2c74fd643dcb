"""Splits that are drawn from another by the hash of the queries' ids: `dev_from_train`, `train_from_test`."""

import heapq
import math
from collections.abc import Mapping, Sequence

from tandem.config.datasets import Dataset, sources
from tandem.data.splits import compute_position, select_lowest
from tandem.errors import UserError
from tandem.plan.graph import Stage
from tandem.stages.data import DatasetParams

_CHANCE = 5  # standard deviations; a threshold on evenly spread hashes never misses a share by them
# A key that draws a split → keys of a dataset by which the same hash has already chosen the queries to draw from.
_CHOSEN_BY = {
    "train_from_test": ("test_queries",),
    "dev_from_train": ("train_queries", "dev_from_train", "train_from_test"),
}


def list_counted(entry: Dataset, upstream: Mapping[str, Stage]) -> list[str]:
    """Return the keys of an entry that draw a split from queries that the hash of their ids has already chosen."""
    own = {"train_from_test": (), "dev_from_train": ("train_from_test", *entry.choosing_keys)}
    counted = []
    for key, choosing in own.items():
        if getattr(entry, key) is None:
            continue
        chooses_itself = any(getattr(entry, name) is not None for name in choosing)
        if chooses_itself or _are_chosen(key, type(entry), upstream):
            counted.append(key)
    return counted


def _are_chosen(key: str, model: type[Dataset], upstream: Mapping[str, Stage]) -> bool:
    """Return whether a dataset upstream has chosen, by the hash, the queries that `key` of this dataset draws from.

    Args:
        model: the class of this dataset's entry.
    """
    if model.always_has:  # its queries are its own
        return False
    for role, stage in upstream.items():
        # ids of several datasets begin with their dataset's name, and so have another hash
        if stage.declared.holds != "collection" or "." in role:
            continue
        base = sources().get(stage.values["source"], Dataset)
        choosing = _CHOSEN_BY[key]
        if key == "dev_from_train":
            choosing += base.choosing_keys
        if any(stage.values.get(name) is not None for name in choosing):
            return True
        if _are_chosen(key, base, stage.upstream):
            return True
    return False


def draw_splits(splits: dict[str, str], params: DatasetParams) -> dict[str, str]:
    """Return query id → split after a dataset's parameters have drawn train from test, and then dev from train."""
    counted = set(params.counted_shares)
    if params.train_from_test is not None:
        splits = move_share(
            splits,
            params.train_from_test,
            "test",
            "train",
            counted="train_from_test" in counted,
        )
        # all queries of train now have hashes below that share
        counted.add("dev_from_train")
    if params.dev_from_train is not None:
        splits = move_share(
            splits,
            params.dev_from_train,
            "train",
            "dev",
            params.dev_from_train_most,
            counted="dev_from_train" in counted,
        )
    return splits


def move_share(
    splits: dict[str, str],
    share: float,
    source: str,
    target: str,
    most: int | None = None,
    counted: bool = False,
) -> dict[str, str]:
    """Move a share of the queries of split `source`, by `choose_share`, into `target`, which must not exist yet.

    A `UserError` where it does, or where no query or every query would move.
    Collections in several languages that share ids (XQuAD) are cut alike.

    Args:
        most: the largest number of queries to move: those with the lowest sha1; None: no limit.
    """
    key = f"{target}_from_{source}"
    queries = [query for query, split in splits.items() if split == source]
    if target in splits.values():
        raise UserError(f"{key}: the source has a {target} split of its own; leave {key} out")
    moved = set(select_lowest(list(choose_share(queries, share, counted)), most))
    if queries and not moved:
        raise UserError(
            f"{key} is {share:g}, which none of {len(queries)} {source} queries falls into; raise it"
        )
    if queries and len(moved) == len(queries):
        raise UserError(
            f"{key} is {share:g}, which all of {len(queries)} {source} queries fall into; lower it"
        )
    return {query: target if query in moved else split for query, split in splits.items()}


def choose_share(queries: Sequence[str], share: float, counted: bool = False) -> set[str]:
    """Return a share of some queries: those whose ids hash below it, or that many with the lowest hashes.

    If `train_queries` or `dev_from_train` has chosen the queries by the same hash, far more or fewer than the share
    lie below it; the lowest are counted then. Otherwise the threshold decides, which cuts every collection with these
    ids alike. A small split's hashes may all be on one side of it: the lowest are counted then, too.

    Args:
        counted: whether to count the lowest, because the hash is known to have chosen the queries.
    """
    expected = share * len(queries)
    deviation = math.sqrt(expected * (1 - share))
    below = {query for query in queries if compute_position(query) < share}
    divides = 0 < len(below) < len(queries)
    if not counted and divides and abs(len(below) - expected) <= _CHANCE * deviation:
        return below
    return set(heapq.nsmallest(round(expected), queries, key=compute_position))
