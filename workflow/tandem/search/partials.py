"""What shards of a search have found: each query's best passages of some blocks, for the stage to merge."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.search.exact import Array
from tandem.store.files import sha256, write_json


@dataclass(frozen=True)
class Partial:
    """One shard's: packed scores and ranks (`exact.pack`), shape (queries, any), memory-mapped, for some blocks."""

    blocks: range
    keys: Array


class Partials:
    """The files of a search's shards, beside its artifact.

    A file is `shards/<first>-<stop>.npy`, named by its blocks; beside it `.told` says what it was made from, so that
    what was found for another search does not count.

    Args:
        folder: the artifact's.
        origin: digest of everything that decides what is found.
    """

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder, self.origin = folder / "shards", origin

    def path(self, blocks: range) -> Path:
        """Where a shard's find is kept."""
        return self.folder / f"{blocks.start}-{blocks.stop}.npy"

    def write(self, blocks: range, shape: tuple[int, int], groups: Iterable[Array]) -> None:
        """Keep what was found in `blocks`, as it comes: packed, groups of queries one after the other."""
        path = self.path(blocks)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial, first = path.with_name(f".{path.name}.{os.getpid()}"), 0
        made = np.lib.format.open_memmap(partial, "w+", np.uint64, shape)
        for keys in groups:
            made[first : first + len(keys)] = keys
            first += len(keys)
        made.flush()
        os.replace(partial, path)
        told = {"origin": self.origin, "blocks": [blocks.start, blocks.stop], "sha256": sha256(path)}
        write_json(path.with_suffix(".told"), told)

    def there(self) -> list[Partial]:
        """What was found and is whole, no block twice, in the order of the blocks."""
        found: list[Partial] = []
        told = filter(None, map(self._told, self.folder.glob("*.told")))
        for blocks in sorted(told, key=lambda blocks: (blocks.start, -blocks.stop)):
            if not found or blocks.start >= found[-1].blocks.stop:
                found.append(Partial(blocks, np.load(self.path(blocks), mmap_mode="r", allow_pickle=False)))
        return found

    def _told(self, path: Path) -> range | None:
        """The blocks of a file; None if it is damaged or was made from something else."""
        try:
            told = json.loads(path.read_text())
            blocks = range(*told["blocks"])
            whole = told["origin"] == self.origin and told["sha256"] == sha256(self.path(blocks))
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return blocks if whole else None

    def remove(self) -> None:
        """Delete all of it, and what killed shards left."""
        for pattern in ("*.told", "*.npy", ".*.npy.*"):
            for path in self.folder.glob(pattern):
                path.unlink()


def missing(count: int, there: Sequence[Partial]) -> list[int]:
    """Those of `count` blocks that no shard has searched."""
    done = {number for one in there for number in one.blocks}
    return [number for number in range(count) if number not in done]
