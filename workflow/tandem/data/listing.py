"""The names of a collection's files, by which a format recognises them and a file's split is guessed."""

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Self

from tandem.data.reading import open_bytes
from tandem.data.splits import order
from tandem.errors import UserError
from tandem.stages.base import Json

DEEPEST = 3  # folders below the one that is named
MOST = 10_000  # files that are looked at
HEAD = 1 << 16  # bytes of a file's beginning
WORD = re.compile(r"[a-z]+\d*|\d+")
ROLES = {  # the first that has a word of a name decides
    "qrels": {"qrels", "qrel", "judgements", "judgments", "labels"},
    "answers": {"answers"},
    "queries": {"queries", "query", "questions", "topics"},
    "corpus": {"corpus", "collection", "passages", "documents", "docs"},
}
TEXTS = (".tsv", ".txt", ".jsonl", ".parquet", ".trec", ".xml")
SPLIT_WORDS = {
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "test": "test",
}  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """Files below a folder: their paths relative to it, without the `.gz` that every reader adds."""

    folder: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Self:
        """The files of one folder, or some files by their names.

        Raises:
            UserError: nothing is there, or several folders are named.
        """
        for path in paths:
            if not path.exists():
                raise UserError(f"--data {path}: no such file or folder")
            if path.is_dir() and len(paths) > 1:
                raise UserError(f"--data {path}: a folder beside other data; one folder, or only files, are allowed")
        folder, files = paths[0], list(paths)
        if folder.is_dir():
            patterns = ("*/" * depth + "*" for depth in range(DEEPEST))
            below = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
            files = list(islice(below, MOST))
        else:
            if any(path.is_absolute() for path in files):
                files = [path.absolute() for path in files]
            folder = Path(os.path.commonpath([path.parent for path in files]))
        names = (path.relative_to(folder).as_posix().removesuffix(".gz") for path in files)
        return cls(folder, tuple(sorted(set(names))))

    def matching(self, *patterns: str) -> list[str]:
        """The names that fit a pattern; `*` does not cross `/`."""
        return [
            name
            for name in self.names
            if any(name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns)
        ]

    def head(self, name: str) -> bytes:
        """The beginning of a file, unpacked; empty where it cannot be read."""
        path = self.folder / name
        try:
            with open_bytes(path if path.is_file() else path.with_name(f"{path.name}.gz")) as file:
                return file.read(HEAD)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, UserError):
            return b""


def words_of(name: str) -> list[str]:
    """The words of a path in lower case: `NQ/biencoder-train_v2.json` has nq, biencoder, train, v2, json."""
    return WORD.findall(name.lower())


def by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Split → names of files, by the first of their words that is a split's; a file without one is of `test`."""
    splits: dict[str, list[str]] = {}
    for name in names:
        split = next((SPLIT_WORDS[word] for word in words_of(name) if word in SPLIT_WORDS), "test")
        splits.setdefault(split, []).append(name)
    return {split: splits[split] for split in sorted(splits, key=order)}


def one_by_split(names: Iterable[str]) -> dict[str, str]:
    """The same where a split is one file; a `UserError` where it would be several."""
    splits = by_split(names)
    for split, files in splits.items():
        if len(files) > 1:
            what = f"--data: {files[0]} and {files[1]} are both taken for split {split}"
            raise UserError(f"{what}; name one of them, or say train, dev and test in their names")
    return {split: files[0] for split, files in splits.items()}


def by_role(listing: Listing) -> Json | None:
    """The keys of source `files`, by words in the files' names; None without passages or queries."""
    roles: dict[str, list[str]] = {role: [] for role in ROLES}
    for name in listing.names:
        words = set(words_of(name))
        role = next((role for role, own in ROLES.items() if own & words), "")
        if role == "qrels" or (role and name.endswith(TEXTS)):
            roles[role].append(name)
    corpus, queries, qrels = roles["corpus"], one_by_split(roles["queries"]), one_by_split(roles["qrels"])
    if not corpus or not queries:
        return None
    if list(queries) == ["test"]:  # one file of queries, which belong to the splits that judge them
        queries = dict.fromkeys(qrels or queries, queries["test"])
    elif list(qrels) == ["test"]:
        qrels = dict.fromkeys(queries, qrels["test"])
    keys: Json = {"corpus": corpus[0] if len(corpus) == 1 else _pattern(listing, corpus), "queries": queries}
    keys |= {"qrels": qrels} if qrels else {}
    return keys | ({"answers": roles["answers"][0]} if roles["answers"] else {})


def _pattern(listing: Listing, names: list[str]) -> str:
    """A pattern that several files fit, and no others."""
    packed = ".gz" if not (listing.folder / names[0]).is_file() else ""
    pattern = re.sub(r"\d+", "*", names[0])
    if listing.matching(pattern) != names:
        what = f"--data: {names[0]} and {names[1]} are both taken for the passages"
        raise UserError(f"{what}; put parts of one corpus into a folder of their own, or name one file")
    return pattern + packed
