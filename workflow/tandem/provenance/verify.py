"""The command `verify`: everything below results/ against its manifests, byte by byte."""

import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tandem.artifact import MANIFEST
from tandem.errors import UserError
from tandem.kinds import KINDS
from tandem.provenance import faults
from tandem.provenance.bundled import Bundle
from tandem.provenance.faults import Fault
from tandem.provenance.found import ORDER, PAIRS, RESULTS, STORE, kind_of, leftovers, places, read_manifest
from tandem.provenance.hashing import Task, compared
from tandem.searching import words as command_line

SHOWN = 1000  # lines
TOLD = "order.json"
REBUILT = ("missing", "truncated", "changed", "damaged", "unfinished", "input")  # faults that building anew mends


def main(words: list[str]) -> int:
    """`verify [FOLDER …] [FILE.yaml …] [--quick] [--threads N] [--json]`: exit status 1 if anything does not fit.

    Reads every file below the folders (results/ if none is named; a dataset, an artifact, an unpacked bundle) and
    compares it with its manifest. Named are files that are missing, truncated, changed or unknown, half-written drafts,
    artifacts whose input was made again with other bytes, and manifests that are not what their folder's name says;
    and the command that builds anew what is damaged.

    Args:
        words: `--quick` compares sizes and reads no file; `--threads` that read, as many as there are cores; `--json` a
            line of JSON per fault; YAML files are repeated in the command that rebuilds.
    """
    told = command_line.read(words, ("--threads",), ("--quick", "--json"))
    roots = [Path(name) for name in told.names] or [RESULTS]
    threads, found, artifacts = told.count("--threads", os.cpu_count() or 1), list[Fault](), 0
    for root in roots:
        bundle = Bundle.at(root)
        if bundle is not None:
            found += bundle.faults(threads)
            root = bundle.results
        folders = list(places(root)) if root.is_dir() or bundle is None else []
        artifacts += len(folders)
        found += [Fault(path, "draft", path, "was being deleted by `tandem gc`") for path in leftovers(root)]
        found += check(folders, threads, "--quick" in told.switches, bundle.left_out if bundle else frozenset())
    if "--json" in told.switches:
        for fault in found:
            print(json.dumps(asdict(fault), default=str, ensure_ascii=False))
    else:
        print(report(found, artifacts, told), end="")
    return 1 if found else 0


def check(folders: list[Path], threads: int, quick: bool, left_out: Iterable[str] = ()) -> list[Fault]:
    """The faults of artifacts and pair stores, in the order of their folders.

    Args:
        folders: as `places` finds them.
        threads: that read files.
        quick: compare sizes alone.
        left_out: keys of artifacts of which only the manifest is there.
    """
    found: list[Fault] = []
    tasks: list[Task] = []
    absent = set(left_out)
    for folder in folders:
        if kind_of(folder) == PAIRS:
            found += of_store(folder)
            continue
        if kind_of(folder) == ORDER:
            tasks += of_order(folder)
            continue
        manifest = read_manifest(folder)
        if manifest is None:
            found += faults.of_folder(folder)
            continue
        found += [*faults.of_manifest(folder, manifest), *faults.of_inputs(folder, manifest)]
        found += [*faults.unknown(folder, manifest), *faults.drafts(folder)]
        if folder.name not in absent:
            tasks += [Task(folder, name, file) for name, file in manifest["files"].items()]
    found += compared(tasks, threads, quick)
    order = {folder: at for at, folder in enumerate(folders)}
    return sorted(found, key=lambda fault: order[fault.folder])


def of_store(folder: Path) -> list[Fault]:
    """Parts of a pair store that cannot be read, or are of another length than their head says."""
    from tandem.search.store import PairStore

    made = []
    if not (folder / STORE).is_file():
        made.append(Fault(folder, "missing", folder / STORE, "nothing says whose scores these are; delete the store"))
    for path in sorted(folder.glob("[!.]*.npy")):
        try:
            PairStore.read(path)
        except UserError as error:
            made.append(Fault(folder, "damaged", path, str(error).split(": ", 1)[1]))
    return made


def of_order(folder: Path) -> list[Task]:
    """The files of an order of ids; none where it is half made: who needs it makes it again."""
    try:
        told = json.loads((folder / TOLD).read_text(encoding="utf-8"))["files"]
        return [Task(folder, name, file) for name, file in told.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def report(found: list[Fault], artifacts: int, told: command_line.Words) -> str:
    """The faults for a person, and how to mend them."""
    lines = [f"{fault.what:<10} {fault.path}: {fault.why}" for fault in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN:,} more: --json tells all")
    damaged = dict.fromkeys(fault.folder for fault in found if fault.what in REBUILT)
    rebuilt = [folder for folder in damaged if kind_of(folder) in KINDS]  # a pair store says itself what to do
    if rebuilt:
        lines.append("\nTo build anew what is damaged (what was made from it keeps its bytes if it gets the same):")
        lines += rebuild(rebuilt, told)
    if removed := [fault.path for fault in found if fault.what in ("unknown", "draft")]:
        lines.append("\nTo remove what nobody reads:")
        lines.append(shlex.join(["rm", "-r", *map(str, removed[:SHOWN])]))
    if not found:
        lines.append(f"{artifacts:,} artifacts are what their manifests say")
    return "\n".join(lines) + "\n"


def rebuild(folders: list[Path], told: command_line.Words) -> list[str]:
    """The commands that build artifacts anew, a line for every folder of results."""
    by_project: dict[Path, list[Path]] = {}
    for folder in folders:
        by_project.setdefault(folder.absolute().parents[3], []).append(folder)
    lines = []
    for project, damaged in by_project.items():
        manifests = [str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()]
        targets = [str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged]
        build = told.snakemake(targets)
        if project != Path.cwd():
            build += f" --directory {shlex.quote(str(project))}"
        lines.append(" && ".join([*([shlex.join(["rm", *manifests])] if manifests else []), build]))
    return lines
