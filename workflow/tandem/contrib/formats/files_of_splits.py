"""The files that an entry names for each split."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from tandem.data.dataset_files import DatasetFiles
from tandem.data.splits import SPLIT, sort_key
from tandem.errors import UserError

_Value = TypeVar("_Value")


def find_by_split(
    key: str, names: Mapping[str, str] | None, files: DatasetFiles
) -> dict[str, Path]:
    """Return split → file of an entry's `{train: train.tsv, …}`, ordered train, dev, test, others; empty for None."""
    names = names or {}
    if not all(map(SPLIT.fullmatch, names)):
        raise UserError(f"{key}: {names!r}; a file by split is needed, as in {key}: {{test: FILE}}")
    return {split: files.find(names[split]) for split in sorted(names, key=sort_key)}


def list_by_split(
    names: Mapping[str, Iterable[str]], files: DatasetFiles
) -> list[tuple[str, Path]]:
    """Return (split, file) of the files that are named for each split, in the order of the splits."""
    paths = []
    for split in sorted(names, key=sort_key):
        paths += [(split, files.find(name)) for name in names[split]]
    return paths


def require_splits(
    key: str, values: Mapping[str, _Value] | None, example: str
) -> Mapping[str, _Value]:
    """Return a mapping by split; refuse a missing or empty one, with `key` and an `example` of values in the error."""
    if not values or not all(map(SPLIT.fullmatch, values)):
        raise UserError(
            f"{key}: {values!r}; at least one of train, dev, test with {example} is needed"
        )
    return values
