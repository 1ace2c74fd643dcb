"""The command `verify`: everything below results/ against its manifests, byte by byte."""

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path

from tandem.cluster.progress import Progress
from tandem.provenance import faults, stores
from tandem.provenance.bundled import Bundle
from tandem.provenance.faults import Fault
from tandem.provenance.found import ORDER, PAIRS, RESULTS, files_in, kind_of, leftovers, places, read_manifest
from tandem.provenance.hashing import Item, Task, compared, stamp
from tandem.provenance.mending import Report
from tandem.searching import words as command_line


def main(words: list[str]) -> int:
    """`verify [FOLDER …] [FILE.yaml …] [--quick] [--threads N] [--json]`: exit status 1 if anything does not fit.

    Reads every file below the folders (results/ if none is named; a dataset, an artifact, an unpacked bundle) and
    compares it with its manifest. Named are files that are missing, truncated, changed or unknown, half-written drafts,
    artifacts whose input was made again with other bytes, and manifests that are not what their folder's name says;
    and the command that builds anew what is damaged.

    Args:
        words: `--quick` compares sizes and reads no file; `--threads` that read, as many as there are cores; `--json` a
            line of JSON per fault, as soon as it is found; YAML files are repeated in the command that rebuilds.
    """
    told = command_line.read(words, ("--threads",), ("--quick", "--json"))
    roots = [Path(name) for name in told.names] or [RESULTS]
    threads, quick = told.count("--threads", os.cpu_count() or 1), "--quick" in told.switches
    report, lines = Report(told), "--json" in told.switches
    for fault in (fault for root in roots for fault in below(root, threads, quick, report)):
        report.add(fault)
        if lines:
            print(json.dumps(asdict(fault), default=str, ensure_ascii=False), flush=True)
    if not lines:
        print(report.text(), end="")
    return 1 if report.count else 0


def below(root: Path, threads: int, quick: bool, report: Report) -> Iterator[Fault]:
    """The faults below a folder; the report is told how many artifacts there are."""
    bundle = Bundle.at(root)
    if bundle is not None:
        yield from bundle.faults(threads)
        root = bundle.results
    folders = list(places(root)) if root.is_dir() or bundle is None else []
    report.artifacts += len(folders)
    for path in leftovers(root):
        yield Fault(path, "draft", path, "was being deleted by `tandem gc`")
    with Progress("verify", len(folders), "artifacts") as progress:
        yield from compared(examined(folders, bundle.left_out if bundle else ()), threads, quick, progress)


def examined(folders: list[Path], left_out: Collection[str]) -> Iterator[Item]:
    """What shows without reading files, and the files that are to be read, folder by folder.

    Args:
        folders: as `places` finds them.
        left_out: keys of artifacts of which only the manifest is there.
    """
    inputs = faults.Inputs()
    for folder in folders:
        kind = kind_of(folder)
        if kind == PAIRS:
            yield from stores.of_pairs(folder)
        elif kind == ORDER:
            yield from stores.of_order(folder)
        else:
            yield from of_artifact(folder, inputs, left_out)
        yield None


def of_artifact(folder: Path, inputs: faults.Inputs, left_out: Collection[str]) -> Iterator[Item]:
    """The faults of an artifact that its manifest shows, then its files."""
    written, manifest = stamp(folder), read_manifest(folder)
    if manifest is None:
        yield from faults.of_folder(folder)
        return
    files = list(files_in(folder))
    yield from faults.of_manifest(folder, manifest)
    yield from inputs.faults(folder, manifest)
    yield from faults.unknown(folder, manifest, files)
    yield from faults.drafts(folder, files)
    if folder.name not in left_out:
        for name, told in manifest["files"].items():
            yield Task(folder, name, told, written)
