"""What each folder below results/ is to `tandem gc`: its class, who needs it, its bytes and what it took."""

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.provenance.faults import is_running
from tandem.provenance.found import ORDER, PAIRS, STORE, bytes_of, files_in, kind_of, leftovers, places, read_manifest
from tandem.store.artifact import MANIFEST

CLASSES = {
    "models": ("model", "pretrain"),
    "transient": ("embeddings", "index", "tokens", "lucene", "bm25s", ORDER),
    "checkpoints": ("checkpoint",),
    "pairs": (PAIRS,),
}
OTHERS = "others"  # runs, scores, lists, datasets, audits: small, or not to be had again
LEFT = "leftovers"  # of deletions that were interrupted
SPENT = "spent"  # vectors and indexes whose runs are finished
NAMES = (*CLASSES, SPENT, OTHERS, LEFT)

Needed = Container[tuple[str, str]]  # (kind, key)


@dataclass(frozen=True)
class Unneeded:
    """A folder that nobody needs.

    Attributes:
        folder: it.
        group: of `NAMES`.
        bytes: on disk.
        seconds: what making it took; None where that is not known.
        finished: when, as its manifest says.
    """

    folder: Path
    group: str
    bytes: int
    seconds: float | None
    finished: str


def unneeded(results: Path, needed: Needed, spent: Needed = ()) -> Iterator[Unneeded]:
    """What lies in results/ and is not needed; folders where a job is running are left out.

    Args:
        results: the folder.
        needed: (kind, key) of what is.
        spent: those of them that are needed for nothing that is still to be made.
    """
    for folder in places(results):
        kind = kind_of(folder)
        if (kind, folder.name) in spent and not is_running(folder):
            yield _described(folder, SPENT)
        elif not _is_needed(folder, kind, needed) and not is_running(folder):
            yield _described(folder, next((name for name, kinds in CLASSES.items() if kind in kinds), OTHERS))
        elif kind != "checkpoint" and (folder / MANIFEST).is_file() and (folder / "checkpoints").is_dir():
            yield _described(folder / "checkpoints", "checkpoints")  # of a finished model, left by a job that was ended
    for folder in leftovers(results):
        yield _described(folder, LEFT)


def _is_needed(folder: Path, kind: str, needed: Needed) -> bool:
    """Whether an artifact is, or what a store was made from."""
    if kind == ORDER:
        return ("dataset", folder.name) in needed
    if kind != PAIRS:
        return (kind, folder.name) in needed
    try:
        told = json.loads((folder / STORE).read_text(encoding="utf-8"))
        return ("tokens", told["tokens"]) in needed and _model(told["model"], needed)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _model(key: str, needed: Needed) -> bool:
    """Whether a model is needed, a part of its training or the whole."""
    return ("model", key) in needed or ("checkpoint", key) in needed


def _described(folder: Path, group: str) -> Unneeded:
    """A folder with its size and what its manifest says."""
    manifest = read_manifest(folder) or {}
    took = manifest.get("seconds")
    seconds = float(took) if isinstance(took, int | float) else None
    return Unneeded(folder, group, bytes_of(files_in(folder)), seconds, str(manifest.get("finished", "")))


def downstream_first(found: list[Unneeded]) -> list[Unneeded]:
    """Latest first, so that what is left after an interruption has its inputs; half-made things before all."""
    return sorted(found, key=lambda one: (one.finished == "", one.finished), reverse=True)
