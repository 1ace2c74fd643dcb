"""Parts of ir_datasets' collections that are read, and their downloads, listed by a process whose home is empty."""

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tandem.data.splits import USUAL_SPLITS

IrdsPart = tuple[str, str]  # id, part: `docs`, `queries` or `qrels`
_LISTING = Path(__file__).with_name("irds_downloads.py")  # a script


class Need(NamedTuple):
    """Describe a download: it is not needed if one of `paths` (relative to ir_datasets' home) exists.

    The paths are the download itself, which a user may put there, and what is unpacked from it. `on_request`: no URL.
    """

    paths: tuple[str, ...]
    size: int | None
    on_request: bool


@lru_cache(maxsize=8)
def find_needs(parts: tuple[IrdsPart, ...]) -> dict[IrdsPart, tuple[Need, ...]]:
    """Return the downloads of each part, found for all parts in a second or two.

    A part whose id ir_datasets lacks has no downloads.
    """
    if not parts:
        return {}
    with tempfile.TemporaryDirectory() as empty:
        # -P keeps the script's folder off the path. Only that process imports ir_datasets.
        done = subprocess.run(
            [sys.executable, "-P", str(_LISTING)],
            input=json.dumps(parts),
            env={**os.environ, "IR_DATASETS_HOME": empty},
            capture_output=True,
            text=True,
            check=True,
        )
    needs: dict[IrdsPart, tuple[Need, ...]] = {}
    for part, downloads in zip(parts, json.loads(done.stdout), strict=True):
        needs[part] = tuple(
            Need(tuple(paths), size, on_request) for paths, size, on_request in downloads
        )
    return needs


def get_home() -> Path:
    """Return ir_datasets' folder: `IR_DATASETS_HOME`, by default `~/.ir_datasets`."""
    return Path(os.environ.get("IR_DATASETS_HOME") or "~/.ir_datasets").expanduser().absolute()


def find_irds_splits(name: str) -> dict[str, tuple[str, ...]]:
    """Return split → ids of a collection whose entry names no splits: those with usual names, else all as test."""
    import ir_datasets  # makes folders when it is imported

    known = ir_datasets.registry
    ids = {split: (f"{name}/{split}",) for split in USUAL_SPLITS}
    splits: dict[str, tuple[str, ...]] = {
        split: part for split, part in ids.items() if part[0] in known
    }
    if splits or name not in known:
        return splits
    whole = ir_datasets.load(name)
    return {"test": (name,)} if whole.has_queries() and whole.has_qrels() else {}
