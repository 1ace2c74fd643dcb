"""What ir_datasets downloads for its ids, found out without touching its home folder.

Importing ir_datasets creates folders below its home, so it is asked in a process of its own with an empty home: this
file is also that process's script, which is why it imports nothing of this package.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

Wanted = tuple[str, str]  # id, part: `docs`, `queries` or `qrels`


class Need(NamedTuple):
    """One download: it is not needed where one of `paths` (relative to ir_datasets' home) exists.

    Attributes:
        paths: the download itself, where it may be put by hand, and what is made of it.
        size: in bytes; None if unknown.
        asked: whether it must be asked for: there is no URL.
    """

    paths: tuple[str, ...]
    size: int | None
    asked: bool


def home() -> Path:
    """ir_datasets' folder: `IR_DATASETS_HOME`, by default `~/.ir_datasets`."""
    return Path(os.environ.get("IR_DATASETS_HOME") or "~/.ir_datasets").expanduser().absolute()


@lru_cache(maxsize=8)
def needs(wanted: tuple[Wanted, ...]) -> dict[Wanted, tuple[Need, ...]]:
    """The downloads of each id's part, in a second or two for all; none for what ir_datasets does not know."""
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-P", __file__],
            input=json.dumps(wanted),
            env={**os.environ, "IR_DATASETS_HOME": empty},
            capture_output=True,
            text=True,
            check=True,
        )
    told = [tuple(Need(tuple(paths), size, asked) for paths, size, asked in one) for one in json.loads(done.stdout)]
    return dict(zip(wanted, told, strict=True))


def _print_needs() -> None:
    """Read wanted parts from standard input, write their needs to standard output, both as JSON."""
    import ir_datasets

    told = []
    for name, part in json.load(sys.stdin):
        try:
            dataset = ir_datasets.load(name)
            there = getattr(dataset, f"has_{part}")()
        except KeyError:
            there = False
        told.append(list(_of(getattr(dataset, f"{part}_handler")(), (), set()).values()) if there else [])
    json.dump(told, sys.stdout)


def _of(thing: Any, made: tuple[str, ...], seen: set[int]) -> dict[str, tuple[list[str], int | None, bool]]:
    """Every download below an object of ir_datasets, by path; `made` is what the objects above make of them."""
    kind = type(thing).__name__
    if isinstance(thing, list | tuple | dict):
        parts = list(thing.values()) if isinstance(thing, dict) else list(thing)
    elif not type(thing).__module__.startswith("ir_datasets") or id(thing) in seen:
        return {}
    elif kind == "Download":
        puts = [getattr(mirror, "_path", None) for mirror in thing.mirrors]
        paths = [_relative(path) for path in (thing._cache_path, *puts) if path]
        asked = all(type(mirror).__name__ == "LocalDownload" for mirror in thing.mirrors)
        return {str(paths): ([*dict.fromkeys([*paths, *made])], thing._size_hint, asked)}
    else:
        own = {"Cache": "_path", "TarExtractAll": "_extract_path", "ZipExtractCache": "extract_path"}.get(kind)
        made = (*made, _relative(getattr(thing, own))) if own else made
        parts = list(vars(thing).values())
    seen = seen | {id(thing)}
    found: dict[str, tuple[list[str], int | None, bool]] = {}
    for part in parts:
        found |= _of(part, made, seen)
    return found


def _relative(path: Any) -> str:
    """A path below the home of this process, relative to it."""
    return os.path.relpath(path, os.environ["IR_DATASETS_HOME"])


if __name__ == "__main__":
    _print_needs()
