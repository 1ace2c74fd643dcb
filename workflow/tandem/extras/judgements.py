"""Judgements of splits that may have none, such as those of questions with answers."""

from typing import Any

import pyarrow.parquet as pq

from tandem.data.collection import QRELS, Collection
from tandem.store.job import Job

Judgements = dict[str, dict[str, int]]  # query id → document id → relevance


def read_judgements(collection: Collection, split: str) -> Judgements:
    """Read the judgements of a split, in file order; empty if there are none."""
    splits = pq.read_table(collection.artifact.path(QRELS), columns=["split"])["split"].unique()
    return collection.qrels(split) if split in splits.to_pylist() else {}


def read_learned_judgements(collection: Collection, *splits: str) -> Judgements:
    """Read the judgements of the train split and of further splits from whose queries a model learns."""
    judged: Judgements = {}
    for split in dict.fromkeys(("train", *splits)):
        judged |= read_judgements(collection, split)
    return judged


def list_learned_splits(job: Job[Any]) -> list[str]:
    """Return the splits whose queries the training lists of a job are of."""
    lists = [job.inputs["candidates"], *job.many("candidates")]
    return [str(artifact.params.get("split", "train")) for artifact in lists]
