"""The judgements a split has, which may be none: a dataset of questions with answers has no qrels."""

import pyarrow.parquet as pq

from tandem.data.collection import QRELS, Collection


def known(collection: Collection, split: str) -> dict[str, dict[str, int]]:
    """Query id → document id → relevance of a split, in file order; empty if nothing is judged."""
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}
