"""What a dataset has from elsewhere: files to be downloaded, collections of ir_datasets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tandem.config.datasets import File
from tandem.config.execution import Mirror
from tandem.data.catalogue import presences, read_entries
from tandem.data.fetch import local_path
from tandem.data.files import Downloads
from tandem.errors import UserError
from tandem.plan.graph import Stage


@dataclass(frozen=True)
class Item:
    """Something to be had from elsewhere.

    Attributes:
        kind: `dataset` or `encoder`.
        name: of it.
        what: a URL, an ir_datasets id, or `org/name@revision` of the hub.
        size: in bytes; None if that is not known before.
        here: whether it is on this machine.
        bring: fetches it, and tells what there is to be said about it.
        note: what there is to be said as long as it is not brought.
    """

    kind: str
    name: str
    what: str
    size: int | None
    here: bool
    bring: Callable[[], str]
    note: str = ""


def of_dataset(stage: Stage, datasets: dict[str, Any]) -> Iterator[Item]:
    """The downloads of a dataset's own files, each URL once; none for one that has a folder or is made here."""
    if stage.values.get("source") == "ir_datasets":
        found = presences([stage.name], read_entries(datasets))[stage.name]
        here = found.state == "here"
        yield Item(
            "dataset",
            stage.name,
            f"ir_datasets {stage.values['id']}",
            found.bytes,
            here,
            partial(bring_ir_datasets, stage.name, stage.values),
        )
    if not (files := stage.execution.get("files")):
        return
    mirrors = [Mirror.model_validate(mirror) for mirror in stage.execution["mirrors"]]
    downloads = Downloads(stage.execution["name"], {name: File(**file) for name, file in files.items()}, mirrors)
    for url in dict.fromkeys(entry["url"] for entry in files.values()):
        names = [name for name, entry in files.items() if entry["url"] == url]
        size = next((files[name]["bytes"] for name in names if "bytes" in files[name]), None)
        path = local_path(url)
        if size is None and path is not None and path.is_file():
            size = path.stat().st_size
        here = all(downloads.is_present(name) for name in names)
        yield Item("dataset", stage.name, url, size, here, partial(fetched, downloads, names))


def fetched(downloads: Downloads, names: list[str]) -> str:
    """Fetch and unpack some of a dataset's files."""
    for name in names:
        downloads.find(name)
    return ""


def bring_ir_datasets(name: str, params: dict[str, Any]) -> str:
    """Have ir_datasets download and unpack a collection's documents, queries and qrels.

    Raises:
        UserError: it cannot, or does not know the collection.
    """
    import ir_datasets  # makes folders when it is imported

    splits = params.get("splits") or {}
    ids = [one for told in splits.values() for one in ([told] if isinstance(told, str) else told)]
    try:
        next(iter(ir_datasets.load(params["id"]).docs_iter()))
        for one in ids or [params["id"]]:
            part = ir_datasets.load(one)
            for rows in ("queries", "qrels"):
                if getattr(part, f"has_{rows}")():
                    next(iter(getattr(part, f"{rows}_iter")()), None)
    except Exception as error:  # whatever its sources raise
        raise UserError(f"datasets.{name}: ir_datasets cannot fetch {params['id']}: {error}") from None
    return ""
