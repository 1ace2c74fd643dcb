"""The command `gc`: artifacts that no configuration needs; listed, and deleted on request."""

import json
import os
import shutil
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tandem.cluster.progress import Progress, format_duration, say
from tandem.errors import UserError
from tandem.extras import targets
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.plan import FullPlan
from tandem.extras.targets import Configurations
from tandem.extras.view_owners import OWNER_FILE
from tandem.plan.dataset_stages import dataset
from tandem.stages import KINDS, holding
from tandem.store.artifact import MANIFEST
from tandem.store.files import files_in
from tandem.store.lineage import walk

LOCKS = Path(".snakemake/locks")
# group of artifacts, by their content
_GROUP_BY_CONTENT = {
    "training": "models",
    "checkpoint": "checkpoints",
    "tokens": "transient",
    "vectors": "transient",
    "index": "transient",
    "lexical index": "transient",
}
# groups of folders that are not artifacts of a stage
_GROUP_BY_STORE = {targets.ORDER: "transient", targets.PAIRS: "pairs"}
_OTHER_GROUP = "others"  # runs, scores, lists, datasets, audits: small, or irreplaceable
_LEFT_GROUP = "leftovers"  # leftovers of interrupted deletions
_SPENT_GROUP = "spent"  # vectors and indexes whose runs are finished
GROUPS = ("models", "transient", "checkpoints", "pairs", _SPENT_GROUP, _OTHER_GROUP, _LEFT_GROUP)

Keys = Container[tuple[str, str]]  # (kind, key)


@dataclass(frozen=True)
class Unneeded:
    """A folder that no configuration needs."""

    folder: Path
    group: str  # one of `GROUPS`
    bytes: int  # on disk
    seconds: float | None  # the time that its making took; None if it is not known
    finished: str  # the time in its manifest


def collect_garbage(
    *,
    configurations: Configurations = (),
    keep: str = "",
    only: str = ",".join(GROUPS),
    spent: bool = False,
    yes: bool = False,
) -> None:
    """List everything in results/ that no configuration needs, with its size and the time that making it took.

    Everything is needed that a target could request by name, not only what `rule all` needs.

    Args:
        keep: artifacts (folders or keys, separated by commas) that are kept with everything they were made from.
        only: classes to list: models, transient (vectors, indexes, token ids), checkpoints, pairs (cross-encoders'
            scores), spent, others, leftovers.
        spent: also list vectors and indexes of `rule all` whose runs are finished; `tandem search` would need them.
        yes: delete what is listed.
    """
    groups = only.split(",")
    if wrong := [name for name in groups if name not in GROUPS]:
        raise UserError(f"--only is {', '.join(wrong)}; allowed: {', '.join(GROUPS)}")
    if not targets.RESULTS.is_dir():
        raise UserError(f"{targets.RESULTS}: no such folder here; run gc where Snakemake is run")
    if yes:
        refuse_locked()
        owned = [*targets.RESULTS.glob("*/tables"), *targets.RESULTS.glob(f"*/{OWNER_FILE}")]
        others = sorted({path.parent.name for path in owned})
        if others and not any(configuration.files for configuration in configurations):
            files = " ".join(f"{stem}.yaml" for stem in others[0].split("+"))
            what = f"{targets.RESULTS}/{others[0]} shows what {files} needs, which was not named"
            raise UserError(
                f"{what}; name every configuration to keep, each by its own --configfile {files}"
            )
    plans = [plan_everything(configuration) for configuration in configurations]
    above = walk(targets.find_artifact(word) for word in keep.split(",") if word)
    protected = {(stage.kind, stage.key) for stage in above.values()}
    needed = protected.union(*(plan.stages for plan in plans))
    done = find_spent_stages(plans) - protected if spent else set()
    kept = find_unplanned_datasets(plans)
    for name, why in kept.items():
        say(f"{targets.RESULTS / name} stays, as what of it is needed cannot be told: {why}")
    folders = [
        folder
        for folder in find_unneeded(targets.RESULTS, needed, done)
        if folder.group in groups and _name_dataset(folder.folder) not in kept
    ]
    # Latest first, so that artifacts remaining after an interruption have their inputs; unfinished folders before all.
    folders.sort(key=lambda folder: (folder.finished == "", folder.finished), reverse=True)
    print(list_unneeded(folders, groups, configurations), end="")
    if yes:
        print(f"deleted: {format_bytes(delete_all(folders))} freed")
    elif folders:
        print("nothing was deleted; --yes deletes what is listed")


def plan_everything(configuration: targets.Configuration) -> FullPlan:
    """Return a configuration's plan with everything that can be requested by name: tables, sweeps, audits and so on."""
    plan = configuration.plan()
    # a table that cannot be planned now, because its data is away, would leave out the artifacts that it needs
    plan.tables.files()
    plan.plan_every_target()
    return plan


def find_unplanned_datasets(plans: Iterable[FullPlan]) -> dict[str, str]:
    """Return name → why, for datasets with results that their configuration cannot plan now: their files are away."""
    unplanned: dict[str, str] = {}
    for plan in plans:
        for name in plan.settings.datasets:
            if not (targets.RESULTS / name).is_dir():
                continue
            try:
                dataset(plan.planner.ctx, name)
            except UserError as error:
                unplanned[name] = str(error).splitlines()[0]
    return unplanned


def _name_dataset(folder: Path) -> str:
    """Return the dataset of a folder below results/."""
    return folder.relative_to(targets.RESULTS).parts[0]


def find_spent_stages(plans: Iterable[FullPlan]) -> set[tuple[str, str]]:
    """Return (kind, key) of vectors and indexes of `rule all` that only finished stages read: none is built again."""
    large = holding("vectors", "index")  # BM25's indexes are small, and many runs search them
    used, waiting = set[tuple[str, str]](), set[tuple[str, str]]()
    for stage in (stage for plan in plans for stage in targets.list_stages_of_all(plan)):
        inputs = {
            (above.kind, above.key) for above in stage.upstream.values() if above.kind in large
        }
        if Path(stage.manifest).is_file():
            used.update(inputs)
        else:
            waiting.update(inputs)
    return used - waiting


def find_unneeded(results: Path, needed: Keys, spent: Keys = ()) -> Iterator[Unneeded]:
    """Yield the folders of results/ that no configuration needs; folders where a job is running are left out."""
    for folder in targets.iterate_artifact_folders(results, follow_links=False):
        kind = targets.get_kind(folder)
        if kind not in KINDS and kind not in _GROUP_BY_STORE:
            continue  # of a plugin that no configuration names: its need is unknown
        if (kind, folder.name) in spent and not targets.is_running(folder):
            yield _describe(folder, _SPENT_GROUP)
        elif not _is_needed(folder, kind, needed) and not targets.is_running(folder):
            yield _describe(
                folder,
                _GROUP_BY_STORE.get(kind) or _GROUP_BY_CONTENT.get(KINDS[kind].holds, _OTHER_GROUP),
            )
        elif (
            kind not in holding("checkpoint")
            and (folder / MANIFEST).is_file()
            and (folder / "checkpoints").is_dir()
        ):
            # checkpoints of a finished model, left by a job that was ended
            yield _describe(folder / "checkpoints", "checkpoints")
    for folder in targets.list_leftovers(results):
        yield _describe(folder, _LEFT_GROUP)


def _is_needed(folder: Path, kind: str, needed: Keys) -> bool:
    """Return whether an artifact, or the artifact that a store belongs to, is needed."""
    if kind != targets.PAIRS:
        return ("dataset" if kind == targets.ORDER else kind, folder.name) in needed
    try:
        identity = json.loads((folder / targets.STORE).read_text(encoding="utf-8"))
        model = any((kind, identity["model"]) in needed for kind in KINDS)
        return ("tokens", identity["tokens"]) in needed and model
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _describe(folder: Path, group: str) -> Unneeded:
    size = 0
    for path in files_in(folder):
        with suppress(FileNotFoundError):  # it may be deleted meanwhile
            size += path.lstat().st_size  # a link counts as itself
    manifest = targets.read_manifest(folder)
    if manifest is None:
        return Unneeded(folder, group, size, seconds=None, finished="")
    return Unneeded(folder, group, size, manifest.seconds, manifest.finished)


def list_unneeded(
    folders: list[Unneeded], groups: list[str], configurations: Sequence[targets.Configuration]
) -> str:
    """Return a line for each folder, and the sum below each class of them; `groups` are the requested classes."""
    if not folders:
        names = ", ".join(configuration.name for configuration in configurations)
        what = "everything" if {*groups} >= {*GROUPS} else f"every folder of {', '.join(groups)}"
        return f"{what} in {targets.RESULTS}/ is needed by {names}\n"
    lines = []
    for group in GROUPS:
        in_group = [folder for folder in folders if folder.group == group]
        if in_group:
            lines += [
                _format_line(folder.bytes, folder.seconds, str(folder.folder))
                for folder in in_group
            ]
            lines += [_sum(in_group, f"{group}: {len(in_group):,} folders"), ""]
    return "\n".join([*lines, _sum(folders, "all")]) + "\n"


def _sum(folders: list[Unneeded], what: str) -> str:
    return _format_line(
        sum(folder.bytes for folder in folders),
        sum(folder.seconds or 0 for folder in folders),
        what,
    )


def _format_line(size: int, seconds: float | None, what: str) -> str:
    return f"{format_bytes(size):>9}  {'' if seconds is None else 'took ' + format_duration(seconds):<18}  {what}"


def refuse_locked() -> None:
    """Refuse to delete while Snakemake runs in this folder."""
    if LOCKS.is_dir() and any(LOCKS.iterdir()):
        locked = f"{LOCKS}: Snakemake is running here, or was killed"
        raise UserError(f"{locked}; wait for it, or free the folder: snakemake --unlock")


def delete_all(folders: list[Unneeded]) -> int:
    """Delete folders one after another; return the number of freed bytes.

    Before each deletion it is checked again that nothing is running: planning and deleting take minutes.
    """
    freed = 0
    with Progress("gc", len(folders), "folders") as progress:
        for folder in folders:
            try:
                refuse_locked()
            except UserError as error:
                raise UserError(
                    f"{error}; deleted before that: {progress.done:,} folders, {format_bytes(freed)}"
                ) from None
            if targets.is_running(folder.folder):
                say(f"{folder.folder}: a job has begun there since; it is left alone")
            elif delete(folder.folder):
                freed += folder.bytes
            progress.add(1)
    return freed


def delete(folder: Path) -> bool:
    """Delete a folder, renamed first so that no half of it is taken for an artifact; return whether it was deleted.

    Folders outside results/, or behind a link, are left alone.
    """
    if folder.is_symlink() or not folder.resolve().is_relative_to(targets.RESULTS.resolve()):
        say(f"{folder}: leads out of {targets.RESULTS}/ and is left alone")
        return False
    doomed = folder
    if not folder.name.startswith(targets.DELETED):
        try:
            doomed = folder.rename(
                folder.with_name(f"{targets.DELETED}{os.getpid()}-{folder.name}")
            )
        except OSError as error:
            raise UserError(f"{folder}: cannot be deleted ({error.strerror})") from None
    shutil.rmtree(doomed, ignore_errors=True)
    if doomed.exists():
        say(f"{doomed}: cannot be removed as a whole; run gc again")
    return True
