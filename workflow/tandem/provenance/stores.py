"""What lies beside the artifacts of a dataset and has no manifest: stores of pairs' scores, orders of ids."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tandem.errors import UserError
from tandem.provenance.faults import ALIVE, Fault
from tandem.provenance.found import STORE
from tandem.provenance.hashing import Item, Task

TOLD = "order.json"


def of_pairs(folder: Path) -> Iterator[Item]:
    """What says whose scores a store of pairs holds, and its parts: their names are their checksums."""
    if fault := _identity(folder):
        yield fault
    for path in sorted(folder.glob("[!.]*.npy")):
        with suppress(FileNotFoundError):  # merged with others meanwhile
            yield from _part(folder, path)
    for path in folder.glob(".*"):
        if time.time() - path.stat().st_mtime > ALIVE:
            yield Fault(folder, "draft", path, "was left half-written by a job that was ended")


def _part(folder: Path, path: Path) -> Iterator[Item]:
    """A part as a file to be read; of one without a checksum, of an earlier version, only the form can be wrong."""
    from tandem.retrieval.pair_store import PairStore, checksum

    if told := checksum(path):
        yield Task(folder, path.name, {"bytes": path.stat().st_size, "sha256": told})
        return
    try:
        PairStore.read(path)
    except UserError as error:
        yield Fault(folder, "damaged", path, str(error).split(": ", 1)[1])


def _identity(folder: Path) -> Fault | None:
    """What is wrong with the file that says whose scores a store holds: the store's name is its digest."""
    from tandem.retrieval.pair_store import store_name

    path, again = folder / STORE, "delete the store, its pairs will be scored again"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        right = folder.absolute().name == store_name(told["model"], told["made_from"])
    except FileNotFoundError:
        return Fault(folder, "missing", path, f"nothing says whose scores these are; {again}")
    except (OSError, ValueError, KeyError, TypeError):
        return Fault(folder, "damaged", path, f"does not say whose scores these are; {again}")
    return None if right else Fault(folder, "changed", path, f"what it tells does not give the store's name; {again}")


def of_order(folder: Path) -> Iterator[Item]:
    """The files of an order of ids; none where it is half made: who needs it makes it again."""
    try:
        files = json.loads((folder / TOLD).read_text(encoding="utf-8"))["files"]
        tasks = [Task(folder, name, {"bytes": file["bytes"], "sha256": file["sha256"]}) for name, file in files.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    yield from tasks
