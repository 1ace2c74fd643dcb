"""The command `prefetch`: download what a configuration needs, so that compute nodes need no network."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from tandem.cluster.progress import say
from tandem.config.settings import Mirror
from tandem.data.dataset_files import Downloads
from tandem.data.fetch import get_local_path
from tandem.errors import UserError
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.catalogue import Entries, locate_datasets
from tandem.extras.irds_needs import find_irds_splits
from tandem.extras.language_models.options import LanguageModel
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configurations, list_stages_of_all, split_files
from tandem.models.folders import check_tokenizer, list_fetched_files, list_weight_files
from tandem.models.hub import COMMIT_PATTERN, fetch_model
from tandem.plan.graph import Stage, upstream_first
from tandem.plan.towers import LOCK, Commits, read_lock
from tandem.redaction import redacted
from tandem.stages.base import Json
from tandem.store.files import write_text

_HEAD = "# Written by `tandem prefetch`: model of the hub → revision → commit. A line that is deleted is pinned anew.\n"


@dataclass(frozen=True)
class RemoteItem:
    """A thing that is downloaded from elsewhere."""

    kind: str  # `dataset`, `encoder` (also a re-ranker's), `generator` or `language model`
    name: str
    what: str  # a URL, an ir_datasets id, or `org/name@revision` on the hub
    size: int | None  # in bytes; None if it is not known in advance
    here: bool  # whether it is on this machine
    fetch: Callable[[], object]  # downloads it
    hub: tuple[str, str] | None = None  # name and revision of a model on the hub

    @property
    def note(self) -> str:
        """Return the warning about a model whose revision may later mean another commit."""
        if self.hub is None or COMMIT_PATTERN.fullmatch(self.hub[1]):
            return ""
        return f"{self.hub[1]} may move; prefetch pins it in {LOCK}"


def prefetch(
    *files: str,
    configurations: Configurations = (),
    dry_run: Annotated[bool, Parameter(name=("--dry-run", "-n"))] = False,
) -> int:
    """Download the files that the stages of `rule all` read from elsewhere; keep complete ones, resume partial ones.

    This includes audits that name a published encoder or re-ranker, or a language model.

    The files of datasets go into TANDEM_DATA, those of ir_datasets into IR_DATASETS_HOME, and models at their revision
    into the hub's cache (HF_HOME). All three folders must be visible to the compute nodes. The commit of a model at a
    branch is written to hub.lock.yaml, next to results/; plans made in this folder use that commit from then on.

    Args:
        files: YAML files on top of config/config.yaml.
        dry_run: only list what would be downloaded.
    """
    names, paths = split_files(files)
    if names:
        raise UserError(f"{names[0]} is not a YAML file; name configurations by FILE.yaml")
    items: dict[tuple[str, str], RemoteItem] = {}
    for configuration in configurations:
        configuration.files += paths
        items |= {(item.kind, item.what): item for item in list_needed_items(configuration.plan())}
    print(redacted(list_items(list(items.values()))))
    if dry_run:
        return 0
    failed = 0
    for item in items.values():
        if not item.here:
            try:
                item.fetch()
                say(f"{item.kind} {item.name}: {item.what} is here")
            except UserError as error:
                failed = 1
                say(f"tandem prefetch: {item.kind} {item.name}: {error}")
    for name, revision in dict.fromkeys(item.hub for item in items.values() if item.hub):
        commit = None if COMMIT_PATTERN.fullmatch(revision) else find_cached_commit(name, revision)
        if commit is not None:
            _write_lock({name: {revision: commit}})
            say(f"{LOCK}: {name} at {revision} is {commit}")
    return failed


def list_needed_items(plan: FullPlan) -> list[RemoteItem]:
    """Return what the stages of `rule all` and published judges read from elsewhere, in the order of need."""
    items: list[RemoteItem] = []
    targets = list_stages_of_all(plan)
    for view in plan.added_views.values():
        targets += view.downloads()
    for stage in upstream_first(targets):
        if stage.declared.holds == "collection":
            items += list_dataset_items(stage, plan.settings.datasets)
        elif stage.declared.holds == "encoder" and stage.values.get("source") == "hub":
            items.append(
                describe_hub_item(
                    "encoder", stage.name, stage.values["name"], stage.values["revision"]
                )
            )
        elif isinstance(stage.params, LanguageModel) and not (
            stage.values["url"] or stage.values["fingerprint"]
        ):
            name, revision = stage.params.model, stage.params.revision or "main"
            items.append(describe_hub_item("language model", stage.name, name, revision))
    return items


def list_items(items: Sequence[RemoteItem]) -> str:
    """Return a line per item, and the total size of the missing ones."""
    if not items:
        return "nothing is read from elsewhere"
    missing = [item for item in items if not item.here]
    lines = []
    for item in items:
        if item.here:
            state = "here"
        elif item.size is None:
            state = "size unknown"
        else:
            state = format_bytes(item.size)
        lines.append(f"{state:>16}  {item.kind} {item.name}  {item.what}")
        lines += [f"{'':>16}  {item.note}"] if item.note else []
    unknown = sum(item.size is None for item in missing)
    more = f" and {unknown} of unknown size" if unknown else ""
    total = format_bytes(sum(item.size or 0 for item in missing))
    return "\n".join(
        [*lines, f"to be downloaded: {total}{more}" if missing else "all of it is here"]
    )


def list_dataset_items(stage: Stage, datasets: Entries) -> Iterator[RemoteItem]:
    """Yield the downloads of a dataset's own files, each URL once; none if it has a folder or is made here."""
    if stage.values.get("source") == "ir_datasets":
        presence = locate_datasets([stage.name], datasets)[stage.name]
        what, load = (
            f"ir_datasets {stage.values['id']}",
            partial(fetch_ir_datasets, stage.name, stage.values),
        )
        yield RemoteItem(
            "dataset", stage.name, what, presence.bytes, presence.state == "here", load
        )
    if "files" not in stage.execution:
        return
    files = datasets[stage.name].files or {}
    downloads = Downloads(
        stage.name, files, [Mirror.model_validate(mirror) for mirror in stage.execution["mirrors"]]
    )
    for url in dict.fromkeys(file.url for file in files.values()):
        names = [name for name, file in files.items() if file.url == url]
        size, path = (
            next((files[n].bytes for n in names if files[n].bytes is not None), None),
            get_local_path(url),
        )
        if size is None and path is not None and path.is_file():
            size = path.stat().st_size
        here = all(downloads.is_present(name) for name in names)

        def fetch(own: list[str] = names) -> None:
            for name in own:
                downloads.find(name)

        yield RemoteItem("dataset", stage.name, url, size, here, fetch)


def fetch_ir_datasets(name: str, params: Json) -> None:
    """Make ir_datasets download and unpack a collection's documents, queries and qrels; a `UserError` if it cannot."""
    import ir_datasets  # creates folders when it is imported

    try:
        next(iter(ir_datasets.load(params["id"]).docs_iter()))
        splits = params.get("splits") or find_irds_splits(params["id"])
        for id_ in chain.from_iterable(splits.values()):
            part = ir_datasets.load(id_)
            for rows in ("queries", "qrels"):
                if getattr(part, f"has_{rows}")():
                    next(iter(getattr(part, f"{rows}_iter")()), None)
    except Exception as error:  # any error of its sources
        raise UserError(
            f"datasets.{name}: ir_datasets cannot fetch {params['id']}: {error}"
        ) from None


def describe_hub_item(kind: str, label: str, name: str, revision: str) -> RemoteItem:
    """Return a model on the hub at its revision, as an item."""
    here = find_cached_commit(name, revision) is not None
    size = None if here else request_size(name, revision)
    return RemoteItem(
        kind,
        label,
        f"{name}@{revision}",
        size,
        here,
        partial(fetch_model, name, revision),
        (name, revision),
    )


def find_cached_commit(name: str, revision: str) -> str | None:
    """Return the commit of an encoder whose weights, configuration and tokenizer are in the hub's cache, else None."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        list_weight_files(folder)
        check_tokenizer(folder)
    except UserError:
        return None
    return folder.name


def request_size(name: str, revision: str) -> int | None:
    """Return the bytes that `models.hub.download` would fetch; None if the hub does not report them."""
    from fnmatch import fnmatchcase

    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=20)
    except Exception:  # any error of its HTTP library: the size is only printed
        return None
    files = [
        file
        for file in info.siblings or []
        if any(fnmatchcase(file.rfilename, name) for name in list_fetched_files())
    ]
    return (
        sum(file.size for file in files)
        if files and all(file.size is not None for file in files)
        else None
    )


def _write_lock(commits: Commits) -> None:
    """Add commits to the lock file."""
    lock = read_lock()
    lock = {name: lock.get(name, {}) | commits.get(name, {}) for name in sorted({*lock, *commits})}
    write_text(Path.cwd() / LOCK, _HEAD + yaml.safe_dump(lock))
