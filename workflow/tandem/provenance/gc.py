"""The command `gc`: artifacts that no configuration needs; listed, and deleted where that is said."""

import os
import shutil
from pathlib import Path

from tandem.cluster.progress import Progress, duration, say
from tandem.data.download import readable
from tandem.errors import UserError
from tandem.provenance.faults import is_running
from tandem.provenance.found import DELETED, RESULTS, find
from tandem.provenance.owned import NAMES, Unneeded, downstream_first, unneeded
from tandem.provenance.wanted import Told, known, read_told, spent
from tandem.searching import words as command_line
from tandem.store.lineage import walk

LOCKS = Path(".snakemake/locks")


def main(words: list[str]) -> int:
    """`gc [--configfile FILE.yaml … [--config key=value …]]… [--keep KEY,…] [--only CLASS,…] [--spent] [--yes]`.

    Lists what lies in results/ and is needed by no configuration, with its size and what making it took. Each
    `--configfile` begins a configuration, several files of one are laid one upon the other; without any it is
    config/config.yaml. Needed is all that a target could ask for by name, not only `rule all`.

    Args:
        words: `--keep` artifacts (folders or keys) that stay with all they were made from; `--only` of the classes
            models, transient (vectors, indexes, token ids), checkpoints, pairs (cross-encoders' scores), spent, others,
            leftovers; `--spent` lists also the vectors and indexes of `rule all` whose runs are finished, which `tandem
            search` would need; `--yes` deletes what is listed.
    """
    configurations, rest = read_told(words)
    told = command_line.read(rest, ("--keep", "--only"), ("--spent", "--yes"))
    if told.names or told.files:
        raise UserError(f"gc: {(told.names or told.files)[0]} is no flag; say --configfile FILE.yaml")
    only = [name for name in told.values.get("--only", ",".join(NAMES)).split(",") if name]
    if wrong := [name for name in only if name not in NAMES]:
        raise UserError(f"--only is {', '.join(wrong)}; allowed: {', '.join(NAMES)}")
    if not RESULTS.is_dir():
        raise UserError(f"{RESULTS}: no such folder here; run gc where Snakemake is run")
    if "--yes" in told.switches:
        refuse_locked()
    keys = told.values.get("--keep", "").split(",")
    plans = [known(one) for one in configurations]
    kept = {(one.kind, one.key) for one in walk(find(word) for word in keys if word).values()}
    needed = kept.union(*(plan.stages for plan in plans))
    done = spent(plans) - kept if "--spent" in told.switches else set()
    found = downstream_first([one for one in unneeded(RESULTS, needed, done) if one.group in only])
    print(listed(found, configurations), end="")
    if "--yes" in told.switches:
        print(f"deleted: {readable(deleted(found))} freed")
    elif found:
        print("nothing was deleted; --yes deletes what is listed")
    return 0


def refuse_locked() -> None:
    """Refuse to delete while Snakemake is at work in this folder."""
    if LOCKS.is_dir() and any(LOCKS.iterdir()):
        told = f"{LOCKS}: Snakemake is running here, or was killed"
        raise UserError(f"{told}; wait for it, or free the folder: snakemake --unlock")


def deleted(found: list[Unneeded]) -> int:
    """Delete folders one after the other; the bytes that were freed.

    Before each it is seen again that nobody is at work: planning took a while, and deleting thousands takes minutes.
    """
    freed = 0
    with Progress("gc", len(found), "folders") as progress:
        for one in found:
            try:
                refuse_locked()
            except UserError as error:
                raise UserError(f"{error}; deleted before that: {progress.done:,} folders, {readable(freed)}") from None
            if is_running(one.folder):
                say(f"{one.folder}: a job has begun there since; it is left alone")
            elif delete(one.folder):
                freed += one.bytes
            progress.add(1)
    return freed


def listed(found: list[Unneeded], configurations: list[Told]) -> str:
    """A line for each folder, the class's sum below it."""
    if not found:
        return f"everything in {RESULTS}/ is needed by {', '.join(one.name for one in configurations)}\n"
    lines = []
    for group in NAMES:
        own = [one for one in found if one.group == group]
        lines += [_line(readable(one.bytes), one.seconds, str(one.folder)) for one in own]
        if own:
            took = sum(one.seconds or 0 for one in own)
            lines += [_line(readable(sum(one.bytes for one in own)), took, f"{group}: {len(own):,} folders"), ""]
    lines.append(_line(readable(sum(one.bytes for one in found)), sum(one.seconds or 0 for one in found), "all"))
    return "\n".join(lines) + "\n"


def _line(size: str, seconds: float | None, what: str) -> str:
    """`  1.2 GB  3 h 12 min  results/…`."""
    return f"{size:>9}  {'' if seconds is None else 'took ' + duration(seconds):<18}  {what}"


def delete(folder: Path) -> bool:
    """Delete a folder of results/: it is renamed first, so that no half of it is ever taken for an artifact.

    Returns:
        Whether it was deleted: not what lies outside results/, or behind a link.
    """
    inside = folder.resolve().is_relative_to(RESULTS.resolve())
    if folder.is_symlink() or not inside:
        say(f"{folder}: leads out of {RESULTS}/ and is left alone")
        return False
    doomed = folder
    if not folder.name.startswith(DELETED):
        doomed = folder.with_name(f"{DELETED}{os.getpid()}-{folder.name}")
        try:
            os.replace(folder, doomed)
        except OSError as error:
            raise UserError(f"{folder}: cannot be deleted ({error.strerror})") from None
    shutil.rmtree(doomed, ignore_errors=True)
    if doomed.exists():
        say(f"{doomed}: cannot be removed as a whole; run gc again")
    return True
