"""The command `prefetch`: brings what a configuration needs from elsewhere, so that compute nodes need no network."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tandem.data.download import readable
from tandem.data.downloads import Downloads
from tandem.data.mirrors import local
from tandem.data.presence import presences
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.plan import Plan
from tandem.progress import say
from tandem.provenance.wanted import ROOT, of_all, read_told
from tandem.searching import words as command_line


@dataclass(frozen=True)
class Item:
    """Something to be had from elsewhere.

    Attributes:
        kind: `dataset` or `encoder`.
        name: of it.
        what: a URL, an ir_datasets id, or `org/name@revision` of the hub.
        size: in bytes; None if that is not known before.
        here: whether it is on this machine.
        bring: fetches it.
    """

    kind: str
    name: str
    what: str
    size: int | None
    here: bool
    bring: Callable[[], object]


def main(words: list[str]) -> int:
    """`prefetch [FILE.yaml …] [--configfile FILE.yaml …] [--config key=value …] [--dry-run]`.

    Brings what the stages of `rule all` read from elsewhere: the files of datasets into TANDEM_DATA, those of
    ir_datasets into IR_DATASETS_HOME, encoders at their revision into the hub's cache (HF_HOME). All three folders must
    be seen by the compute nodes. What is there already is left; what was begun is resumed.

    Args:
        words: YAML files are laid upon config/config.yaml; `--dry-run` (`-n`) only tells what would be brought.
    """
    words = ["--dry-run" if word == "-n" else word for word in words]
    configurations, rest = read_told(words)
    told = command_line.read(rest, (), ("--dry-run",))
    if told.names:
        raise UserError(f"prefetch: {told.names[0]} is no YAML file; name configurations by FILE.yaml")
    for one in configurations:
        one.files += told.files
    items = {(item.kind, item.what): item for one in configurations for item in needed(Plan(one.config(), ROOT))}
    print(listed(list(items.values())))
    if "--dry-run" in told.switches:
        return 0
    return bring([item for item in items.values() if not item.here])


def needed(plan: Plan) -> list[Item]:
    """What the stages of `rule all` read from elsewhere, in the order in which they need it."""
    stages = of_all(plan)
    made: list[Item] = []
    for stage in stages:
        if stage.kind == "dataset":
            made += of_dataset(stage, plan.config["datasets"])
        elif stage.kind == "encoder" and stage.params["source"] == "hub":
            made.append(of_hub(stage))
    return made


def of_dataset(stage: Stage, datasets: dict[str, Any]) -> Iterator[Item]:
    """The downloads of a dataset's own files, each URL once; none for one that has a folder or is made here."""
    if stage.params.get("source") == "ir_datasets":
        found = presences([stage.name], datasets)[stage.name]
        here = found.state == "here"
        yield Item(
            "dataset",
            stage.name,
            f"ir_datasets {stage.params['id']}",
            found.bytes,
            here,
            partial(bring_ir_datasets, stage.name, stage.params),
        )
    if not (files := stage.execution.get("files")):
        return
    downloads = Downloads(stage.execution["name"], files, stage.execution["mirrors"])
    for url in dict.fromkeys(entry["url"] for entry in files.values()):
        names = [name for name, entry in files.items() if entry["url"] == url]
        size = next((files[name]["bytes"] for name in names if "bytes" in files[name]), None)
        path = local(url)
        if size is None and path is not None and path.is_file():
            size = path.stat().st_size
        here = all(downloads.here(name) for name in names)
        yield Item("dataset", stage.name, url, size, here, partial(fetched, downloads, names))


def fetched(downloads: Downloads, names: list[str]) -> None:
    """Fetch and unpack some of a dataset's files."""
    for name in names:
        downloads.at(name)


def bring_ir_datasets(name: str, params: dict[str, Any]) -> None:
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


def of_hub(stage: Stage) -> Item:
    """An encoder of the hub at its revision."""
    from tandem.models.encoder import download

    name, revision = stage.params["name"], stage.params["revision"]
    here = in_cache(name, revision)
    size = None if here else hub_size(name, revision)
    return Item("encoder", stage.name, f"{name}@{revision}", size, here, partial(download, name, revision))


def in_cache(name: str, revision: str) -> bool:
    """Whether an encoder's weights and configuration are in the hub's cache at that revision."""
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "model.safetensors")
    return all(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in files)


def hub_size(name: str, revision: str) -> int | None:
    """Bytes that `models.encoder.download` would fetch; None where the hub does not say, or cannot be asked."""
    from fnmatch import fnmatchcase

    from huggingface_hub import HfApi

    from tandem.models.encoder import FILES

    try:
        files = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=20).siblings or []
    except Exception:  # whatever its HTTP library raises: a size is only told
        return None
    sizes = [one.size for one in files if any(fnmatchcase(one.rfilename, pattern) for pattern in FILES)]
    return sum(sizes) if sizes and all(size is not None for size in sizes) else None


def listed(items: Sequence[Item]) -> str:
    """A line for each item, and what is to be brought in all."""
    if not items:
        return "nothing is read from elsewhere"
    missing = [item for item in items if not item.here]
    lines = [f"{_state(item):>16}  {item.kind} {item.name}  {item.what}" for item in items]
    unknown = sum(item.size is None for item in missing)
    more = f" and {unknown} of unknown size" if unknown else ""
    total = readable(sum(item.size or 0 for item in missing))
    return "\n".join([*lines, f"to be brought: {total}{more}" if missing else "all of it is here"])


def _state(item: Item) -> str:
    """`here`, or the size to be brought."""
    return "here" if item.here else "size unknown" if item.size is None else readable(item.size)


def bring(items: Iterable[Item]) -> int:
    """Fetch items one after the other; one that cannot be had does not keep the others from being fetched.

    Returns:
        The exit status: 1 if one is missing.
    """
    failed = 0
    for item in items:
        try:
            item.bring()
            say(f"{item.kind} {item.name}: {item.what} is here")
        except UserError as error:
            failed = 1
            print(f"tandem prefetch: {item.kind} {item.name}: {error}", file=sys.stderr)
    return failed
