"""Which split the name of a file means."""

import re
from collections.abc import Iterable
from pathlib import Path

from tandem.data.reading import strip_packing
from tandem.data.splits import SPLIT, sort_key
from tandem.errors import UserError

SPLIT_WORDS = {
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "development": "dev", "test": "test",
}  # fmt: skip
_WORD = re.compile(r"[a-z]+\d*|\d+")


def read_split(path: Path) -> str:
    """Return the split whose judgements a file of BEIR's layout holds, from its name.

    A `UserError` for any other name.
    """
    name = strip_packing(path.name)
    split = name.removesuffix(".tsv")
    if split == name or not SPLIT.fullmatch(split):
        allowed = "<split>.tsv, packed or not, in lower case"
        raise UserError(f"{path}: a split's judgements are {allowed}; rename or remove it")
    return split


def group_qrels(paths: Iterable[Path]) -> dict[str, Path]:
    """Return split → file of its judgements, in the order of splits; a `UserError` where two files have one split."""
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


def find_splits(name: str) -> list[str]:
    """Return the splits that the words of a path name, with or without a number after them.

    >>> find_splits("dev2/qrels-train100k.tsv")
    ['dev', 'train']
    """
    words = (word.rstrip("0123456789") for word in split_name(name))
    return [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]


def group_by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return split → names of files, by the first word in a name that is a split; names without one are `test`."""
    splits: dict[str, list[str]] = {}
    for name in names:
        split = next(iter(find_splits(name)), "test")
        splits.setdefault(split, []).append(name)
    return {split: splits[split] for split in sorted(splits, key=sort_key)}


def match_by_split(names: Iterable[str]) -> dict[str, str]:
    """Return split → file by its name; a `UserError` if a split would have several."""
    splits = group_by_split(names)
    for split, files in splits.items():
        if len(files) > 1:
            what = f"--data: {files[0]} and {files[1]} are both taken for split {split}"
            raise UserError(f"{what}; name one of them, or say train, dev and test in their names")
    return {split: files[0] for split, files in splits.items()}
