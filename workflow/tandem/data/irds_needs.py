"""The downloads that ir_datasets needs for its ids, listed without touching its home folder.

Importing ir_datasets creates folders below its home, so another process with an empty home imports it. This file is
also that process's script, which is why it imports nothing of this package.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

Part = tuple[str, str]  # id, part: `docs`, `queries` or `qrels`


class Need(NamedTuple):
    """One download: it is not needed where one of `paths` (relative to ir_datasets' home) exists.

    They are the download itself, where it may be put by hand, and what is unpacked from it. `on_request` has no URL.
    """

    paths: tuple[str, ...]
    size: int | None
    on_request: bool


def home() -> Path:
    """ir_datasets' folder: `IR_DATASETS_HOME`, by default `~/.ir_datasets`."""
    return Path(os.environ.get("IR_DATASETS_HOME") or "~/.ir_datasets").expanduser().absolute()


@lru_cache(maxsize=8)
def needs(parts: tuple[Part, ...]) -> dict[Part, tuple[Need, ...]]:
    """The downloads of each id's part, in a second or two for all; none for what ir_datasets does not know."""
    if not parts:
        return {}
    with tempfile.TemporaryDirectory() as empty:
        command, environment = [sys.executable, "-P", __file__], {**os.environ, "IR_DATASETS_HOME": empty}
        done = subprocess.run(
            command, input=json.dumps(parts), env=environment, capture_output=True, text=True, check=True
        )
    lists = json.loads(done.stdout)
    downloads = [tuple(Need(tuple(paths), size, on_request) for paths, size, on_request in needs) for needs in lists]
    return dict(zip(parts, downloads, strict=True))


def _print_needs() -> None:
    """Read parts from standard input, write their needs to standard output, both as JSON."""
    import ir_datasets

    lists = []
    for name, part in json.load(sys.stdin):
        try:
            dataset = ir_datasets.load(name)
            exists = getattr(dataset, f"has_{part}")()
        except KeyError:
            exists = False
        lists.append(list(_downloads(getattr(dataset, f"{part}_handler")(), (), set()).values()) if exists else [])
    json.dump(lists, sys.stdout)


def _downloads(thing: Any, unpacked: tuple[str, ...], seen: set[int]) -> dict[str, tuple[list[str], int | None, bool]]:
    """Every download below an object of ir_datasets, by path; `unpacked` is where the objects above unpack them."""
    kind = type(thing).__name__
    if isinstance(thing, list | tuple | dict):
        parts = list(thing.values()) if isinstance(thing, dict) else list(thing)
    elif not type(thing).__module__.startswith("ir_datasets") or id(thing) in seen:
        return {}
    elif kind == "Download":
        by_hand = [getattr(mirror, "_path", None) for mirror in thing.mirrors]
        paths = [_relative(path) for path in (thing._cache_path, *by_hand) if path]
        on_request = all(type(mirror).__name__ == "LocalDownload" for mirror in thing.mirrors)
        return {str(paths): ([*dict.fromkeys([*paths, *unpacked])], thing._size_hint, on_request)}
    else:
        own = {"Cache": "_path", "TarExtractAll": "_extract_path", "ZipExtractCache": "extract_path"}.get(kind)
        unpacked = (*unpacked, _relative(getattr(thing, own))) if own else unpacked
        parts = list(vars(thing).values())
    seen = seen | {id(thing)}
    downloads: dict[str, tuple[list[str], int | None, bool]] = {}
    for part in parts:
        downloads |= _downloads(part, unpacked, seen)
    return downloads


def _relative(path: Any) -> str:
    return os.path.relpath(path, os.environ["IR_DATASETS_HOME"])


if __name__ == "__main__":
    _print_needs()
