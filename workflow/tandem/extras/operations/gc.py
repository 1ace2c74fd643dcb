"""The command `gc`: artifacts that no configuration needs; listed, and deleted on request."""

import json
import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tandem.cluster.progress import Progress, format_duration, say
from tandem.data.fetch import format_bytes
from tandem.errors import UserError
from tandem.extras.operations import targets
from tandem.extras.operations.targets import Configurations
from tandem.extras.plan import FullPlan
from tandem.stages import KINDS, holding
from tandem.store.artifact import MANIFEST
from tandem.store.files import files_in
from tandem.store.lineage import walk

LOCKS = Path(".snakemake/locks")
CLASSES = {
    "training": "models",
    "checkpoint": "checkpoints",
    "tokens": "transient",
    "vectors": "transient",
    "index": "transient",
    "lexical index": "transient",
}  # by what artifacts hold
STORES = {targets.ORDER: "transient", targets.PAIRS: "pairs"}  # of folders that are no artifacts of a stage
OTHERS = "others"  # runs, scores, lists, datasets, audits: small, or not to be replaced
LEFT = "leftovers"  # of deletions that were interrupted
SPENT = "spent"  # vectors and indexes whose runs are finished
NAMES = ("models", "transient", "checkpoints", "pairs", SPENT, OTHERS, LEFT)

Keys = Container[tuple[str, str]]  # (kind, key)


@dataclass(frozen=True)
class Unneeded:
    """A folder that no configuration needs."""

    folder: Path
    group: str  # one of `NAMES`
    bytes: int  # on disk
    seconds: float | None  # what making it took; None where that is not known
    finished: str  # when, as its manifest says


def gc(
    *,
    configurations: Configurations = (),
    keep: str = "",
    only: str = ",".join(NAMES),
    spent: bool = False,
    yes: bool = False,
) -> None:
    """List what lies in results/ and no configuration needs, with its size and what making it took.

    Needed is everything that a target could request by name, not only `rule all`.

    Args:
        keep: artifacts (folders or keys, with commas between them) that stay with all they were made from.
        only: classes to list: models, transient (vectors, indexes, token ids), checkpoints, pairs (cross-encoders'
            scores), spent, others, leftovers.
        spent: list also vectors and indexes of `rule all` whose runs are finished; `tandem search` would need them.
        yes: delete what is listed.
    """
    groups = only.split(",")
    if wrong := [name for name in groups if name not in NAMES]:
        raise UserError(f"--only is {', '.join(wrong)}; allowed: {', '.join(NAMES)}")
    if not targets.RESULTS.is_dir():
        raise UserError(f"{targets.RESULTS}: no such folder here; run gc where Snakemake is run")
    if yes:
        refuse_locked()
        others = sorted(folder.parent.name for folder in targets.RESULTS.glob("*/tables"))
        if others and not any(configuration.files for configuration in configurations):
            files = " ".join(f"{stem}.yaml" for stem in others[0].split("+"))
            what = f"{targets.RESULTS}/{others[0]} shows what {files} needs, which was not named"
            raise UserError(f"{what}; name every configuration to keep, each by its own --configfile {files}")
    plans = [full_plan(configuration) for configuration in configurations]
    above = walk(targets.find(word) for word in keep.split(",") if word)
    protected = {(stage.kind, stage.key) for stage in above.values()}
    needed = protected.union(*(plan.stages for plan in plans))
    done = spent_stages(plans) - protected if spent else set()
    folders = [folder for folder in unneeded(targets.RESULTS, needed, done) if folder.group in groups]
    # Latest first, so that what is left after an interruption has its inputs; unfinished folders before all.
    folders.sort(key=lambda folder: (folder.finished == "", folder.finished), reverse=True)
    print(listing(folders, groups, configurations), end="")
    if yes:
        print(f"deleted: {format_bytes(delete_all(folders))} freed")
    elif folders:
        print("nothing was deleted; --yes deletes what is listed")


def full_plan(configuration: targets.Configuration) -> FullPlan:
    """A configuration's plan with everything that can be requested by name: tables, sweeps, audits and so on."""
    plan = configuration.plan()
    plan.tables.files()  # a table that cannot be planned today, its data being away, would leave out what it needs
    plan.sweep_files()
    plan.plan_every_target()
    optional: list[Callable[[], object]] = [partial(plan.counted, name) for name in plan.statistics]
    for plan_stages in (plan.validations, *optional):
        with suppress(UserError):
            plan_stages()
    return plan


def spent_stages(plans: Iterable[FullPlan]) -> set[tuple[str, str]]:
    """(kind, key) of vectors and indexes of `rule all` that only finished stages read: none is built again."""
    large = holding("vectors", "index")  # those of BM25 are small, and many runs search them
    used, waiting = set[tuple[str, str]](), set[tuple[str, str]]()
    for stage in (stage for plan in plans for stage in targets.stages_of_all(plan)):
        inputs = {(above.kind, above.key) for above in stage.upstream.values() if above.kind in large}
        (used if Path(stage.manifest).is_file() else waiting).update(inputs)
    return used - waiting


def unneeded(results: Path, needed: Keys, spent: Keys = ()) -> Iterator[Unneeded]:
    """The folders of results/ that no configuration needs; folders where a job is running are left out."""
    for folder in targets.artifact_folders(results):
        kind = targets.kind_of(folder)
        if (kind, folder.name) in spent and not targets.is_running(folder):
            yield _describe(folder, SPENT)
        elif not _is_needed(folder, kind, needed) and not targets.is_running(folder):
            yield _describe(folder, STORES.get(kind) or CLASSES.get(KINDS[kind].holds, OTHERS))
        elif kind not in holding("checkpoint") and (folder / MANIFEST).is_file() and (folder / "checkpoints").is_dir():
            yield _describe(folder / "checkpoints", "checkpoints")  # of a finished model, left by a job that was ended
    for folder in targets.leftovers(results):
        yield _describe(folder, LEFT)


def _is_needed(folder: Path, kind: str, needed: Keys) -> bool:
    """Whether an artifact is needed, or what a store was made from."""
    if kind != targets.PAIRS:
        return ("dataset" if kind == targets.ORDER else kind, folder.name) in needed
    try:
        identity = json.loads((folder / targets.STORE).read_text(encoding="utf-8"))
        model = any((kind, identity["model"]) in needed for kind in KINDS)
        return ("tokens", identity["tokens"]) in needed and model
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _describe(folder: Path, group: str) -> Unneeded:
    manifest, size = targets.read_manifest(folder), 0
    for path in files_in(folder):
        with suppress(FileNotFoundError):  # deleted meanwhile
            size += path.lstat().st_size  # a link counts as itself
    return Unneeded(folder, group, size, manifest.seconds if manifest else None, manifest.finished if manifest else "")


def listing(folders: list[Unneeded], groups: list[str], configurations: Sequence[targets.Configuration]) -> str:
    """A line for each folder, and the sum below each class of them; `groups` are the classes that were asked for."""
    if not folders:
        names = ", ".join(configuration.name for configuration in configurations)
        what = "everything" if {*groups} >= {*NAMES} else f"every folder of {', '.join(groups)}"
        return f"{what} in {targets.RESULTS}/ is needed by {names}\n"
    lines = []
    for group in NAMES:
        if own := [folder for folder in folders if folder.group == group]:
            lines += [_line(folder.bytes, folder.seconds, str(folder.folder)) for folder in own]
            lines += [_sum(own, f"{group}: {len(own):,} folders"), ""]
    return "\n".join([*lines, _sum(folders, "all")]) + "\n"


def _sum(folders: list[Unneeded], what: str) -> str:
    return _line(sum(folder.bytes for folder in folders), sum(folder.seconds or 0 for folder in folders), what)


def _line(size: int, seconds: float | None, what: str) -> str:
    return f"{format_bytes(size):>9}  {'' if seconds is None else 'took ' + format_duration(seconds):<18}  {what}"


def refuse_locked() -> None:
    """Refuse to delete while Snakemake is at work in this folder."""
    if LOCKS.is_dir() and any(LOCKS.iterdir()):
        locked = f"{LOCKS}: Snakemake is running here, or was killed"
        raise UserError(f"{locked}; wait for it, or free the folder: snakemake --unlock")


def delete_all(folders: list[Unneeded]) -> int:
    """Delete folders one after the other; the bytes that were freed.

    Before each it is checked again that nothing is at work: planning and deleting take minutes.
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
    """Delete a folder, renamed first so that no half of it is taken for an artifact; whether it was deleted.

    What lies outside results/, or behind a link, is left alone.
    """
    if folder.is_symlink() or not folder.resolve().is_relative_to(targets.RESULTS.resolve()):
        say(f"{folder}: leads out of {targets.RESULTS}/ and is left alone")
        return False
    doomed = folder
    if not folder.name.startswith(targets.DELETED):
        try:
            doomed = folder.rename(folder.with_name(f"{targets.DELETED}{os.getpid()}-{folder.name}"))
        except OSError as error:
            raise UserError(f"{folder}: cannot be deleted ({error.strerror})") from None
    shutil.rmtree(doomed, ignore_errors=True)
    if doomed.exists():
        say(f"{doomed}: cannot be removed as a whole; run gc again")
    return True
