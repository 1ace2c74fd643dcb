"""The downloads of collections of ir_datasets: a script, from JSON on standard input to JSON on standard output.

It imports only ir_datasets and standard modules, and so starts in half the time. `IR_DATASETS_HOME` is an empty folder.
"""

import json
import os
import sys
from typing import Any


def main() -> None:
    """Read parts (id, `docs`, `queries` or `qrels`) and write the downloads of each: paths, size, `on_request`."""
    import ir_datasets  # which creates folders below its home

    lists = []
    for name, part in json.load(sys.stdin):
        try:
            dataset = ir_datasets.load(name)
            exists = getattr(dataset, f"has_{part}")()
        except KeyError:
            exists = False
        lists.append(
            list(_find_downloads(getattr(dataset, f"{part}_handler")(), (), set()).values())
            if exists
            else []
        )
    json.dump(lists, sys.stdout)


def _find_downloads(
    thing: Any, unpacked: tuple[str, ...], seen: set[int]
) -> dict[str, tuple[list[str], int | None, bool]]:
    """Return every download below an object of ir_datasets, by path.

    `unpacked` has the paths where the objects above unpack them.
    """
    kind = type(thing).__name__
    if isinstance(thing, list | tuple | dict):
        parts = list(thing.values()) if isinstance(thing, dict) else list(thing)
    elif not type(thing).__module__.startswith("ir_datasets") or id(thing) in seen:
        return {}
    elif kind == "Download":
        by_hand = [getattr(mirror, "_path", None) for mirror in thing.mirrors]
        paths = [_make_relative(path) for path in (thing._cache_path, *by_hand) if path]
        on_request = all(type(mirror).__name__ == "LocalDownload" for mirror in thing.mirrors)
        return {str(paths): ([*dict.fromkeys([*paths, *unpacked])], thing._size_hint, on_request)}
    else:
        own = {
            "Cache": "_path",
            "TarExtractAll": "_extract_path",
            "ZipExtractCache": "extract_path",
        }.get(kind)
        unpacked = (*unpacked, _make_relative(getattr(thing, own))) if own else unpacked
        parts = list(vars(thing).values())
    seen = seen | {id(thing)}
    downloads: dict[str, tuple[list[str], int | None, bool]] = {}
    for part in parts:
        downloads |= _find_downloads(part, unpacked, seen)
    return downloads


def _make_relative(path: Any) -> str:
    return os.path.relpath(path, os.environ["IR_DATASETS_HOME"])


if __name__ == "__main__":
    main()
