"""The command `verify`: everything below results/ against its manifests, byte by byte."""

import json
import os
import shlex
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from tandem.cluster.progress import Progress
from tandem.data.fetch import readable
from tandem.extras.operations.bundle import AGAIN, LIST, Bundle, read_bundle
from tandem.extras.operations.configurations import Configuration, split_files
from tandem.extras.operations.scan import (
    RESULTS,
    Examined,
    Fault,
    Inputs,
    artifact_folders,
    examine,
    kind_of,
    leftovers,
    stamp,
)
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, FileRecord
from tandem.store.files import files_in, sha256

SMALL = 1 << 20  # bytes of an artifact whose files one thread reads: to hand each over would cost more
AHEAD = 64  # folders whose files are being read
LINES = 1000  # faults, and files to be removed, in a report
REBUILT = ("missing", "truncated", "changed", "damaged", "unfinished", "input")  # faults that building anew mends
REMOVED = ("unknown", "draft")


def verify(
    *places: str,
    quick: Annotated[bool, Parameter(negative="")] = False,
    threads: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    json_lines: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Compare everything below results/ with its manifests, byte by byte; exit status 1 if anything differs.

    Reports files that are missing, truncated, changed or unknown, half-written drafts, artifacts whose input was made
    again with other bytes, and manifests that do not fit their folder's name; and the command that builds anew what is
    damaged.

    Args:
        places: folders below which every file is read (a dataset, an artifact, an unpacked bundle), by default
            results/; YAML files are repeated in the command that rebuilds.
        quick: compare sizes alone.
        threads: that read files; by default as many as there are cores.
        json_lines: print a line of JSON per fault, as soon as it is found.
    """
    names, files = split_files(places)
    report, pool = Report(Configuration(files)), ThreadPoolExecutor(threads or os.cpu_count())
    try:
        for root in [Path(name) for name in names] or [RESULTS]:
            for fault in below(root, quick, pool, report):
                report.add(fault)
                if json_lines:
                    print(json.dumps(asdict(fault), default=str, ensure_ascii=False), flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    if not json_lines:
        print(report.text(), end="")
    return 1 if report.count else 0


def below(root: Path, quick: bool, pool: Executor, report: "Report") -> Iterator[Fault]:
    """The faults below a folder, artifact by artifact; the report counts these."""
    bundle, inputs, total = read_bundle(root), Inputs(), 0
    results = root / "results" if bundle else root
    folders = list(artifact_folders(results)) if results.is_dir() or bundle is None else []
    report.artifacts += len(folders)
    for path in leftovers(results):
        yield Fault(path, "draft", path, "was being deleted by `tandem gc`")
    listed = [examine_bundle(root, bundle)] if bundle else []
    artifacts = (examine(folder, inputs, bundle.left_out if bundle else ()) for folder in folders)
    with Progress("verify", len(listed) + len(folders), "folders") as progress:
        for examined, comparisons in compared(chain(listed, artifacts), quick, pool):
            yield from examined.faults
            for comparison in comparisons:
                yield from comparison.result()
            total += examined.bytes
            progress.add(1, note=f"{readable(total)} {'listed' if quick else 'read'}")


def compared(
    folders: Iterable[Examined], quick: bool, pool: Executor
) -> Iterator[tuple[Examined, list[Future[list[Fault]]]]]:
    """Folders and the comparisons of their files, in order; the next folders are looked at and read meanwhile."""
    waiting: deque[tuple[Examined, list[Future[list[Fault]]]]] = deque()
    for examined in folders:
        parts = [list(examined.files)] if examined.bytes < SMALL else [[name] for name in examined.files]
        waiting.append((examined, [pool.submit(differing, examined, part, quick) for part in parts]))
        if len(waiting) > AHEAD:
            yield waiting.popleft()
    yield from waiting


def examine_bundle(folder: Path, bundle: Bundle) -> Examined:
    """The files of an unpacked bundle, and those that neither belong to it nor to its table made again."""
    places, own = [path.relative_to(folder) for path in files_in(folder)], {*bundle.files, LIST}
    unlisted = [place for place in places if place.as_posix() not in own and place.parts[0] != AGAIN]
    faults = [Fault(folder, "unknown", folder / place, f"is not in {LIST}") for place in unlisted]
    return Examined(folder, stamp(folder), faults, bundle.files)


def differing(examined: Examined, names: Iterable[str], quick: bool) -> list[Fault]:
    """The files that differ from what is expected; none if the artifact was deleted or made again meanwhile."""
    faults = [fault for name in names if (fault := compare(examined.folder, name, examined.files[name], quick))]
    return faults if stamp(examined.folder) == examined.stamp else []


def compare(folder: Path, name: str, expected: FileRecord, quick: bool) -> Fault | None:
    """The fault of a file that is missing, of another size or, unless `quick`, of other bytes."""
    path = folder / name
    try:
        size = path.stat().st_size
        digest = None if quick or size != expected.bytes else sha256(path)
    except OSError as error:
        why = f"cannot be read ({error.strerror}); {expected.bytes:,} bytes expected"
        return Fault(folder, "missing", path, why)
    if size != expected.bytes:
        what = "truncated" if size < expected.bytes else "changed"
        return Fault(folder, what, path, f"has {size:,} bytes, {expected.bytes:,} in the manifest")
    if digest and digest != expected.sha256:
        return Fault(folder, "changed", path, f"has sha256 {digest}, {expected.sha256} in the manifest")
    return None


@dataclass
class Report:
    """The faults for a person; `configuration` is repeated in the commands that mend them."""

    configuration: Configuration
    artifacts: int = 0
    count: int = 0
    faults: list[Fault] = field(default_factory=list)  # the first
    damaged: dict[Path, None] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Count a fault and note what mends it."""
        self.count += 1
        if len(self.faults) < LINES:
            self.faults.append(fault)
        if fault.what in REBUILT and kind_of(fault.folder) in KINDS:  # a pair store's fault says itself what to do
            self.damaged[fault.folder] = None

    def text(self) -> str:
        """The faults, and how to mend them."""
        if not self.count:
            return f"{self.artifacts:,} artifacts are what their manifests say\n"
        lines = [f"{fault.what:<10} {fault.path}: {fault.why}" for fault in self.faults]
        if self.count > LINES:
            lines.append(f"… and {self.count - LINES:,} more: --json tells all")
        if self.damaged:
            lines.append("\nTo build anew what is damaged (what was made from it keeps its bytes if it gets the same):")
            lines += self._rebuild(list(self.damaged)[:LINES])
            if len(self.damaged) > LINES:
                lines.append(f"… and {len(self.damaged) - LINES:,} more: verify again after that")
        if removed := [str(fault.path) for fault in self.faults if fault.what in REMOVED]:
            lines += ["\nTo remove what nobody reads:", shlex.join(["rm", "-r", *removed])]
        return "\n".join(lines) + "\n"

    def _rebuild(self, folders: list[Path]) -> Iterator[str]:
        by_project: dict[Path, list[Path]] = {}
        for folder in folders:
            by_project.setdefault(folder.absolute().parents[3], []).append(folder)
        for project, damaged in by_project.items():
            manifests = [str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()]
            targets = [str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged]
            remove = f"{shlex.join(['rm', *manifests])} && " if manifests else ""
            directory = "" if project == Path.cwd() else f" --directory {shlex.quote(str(project))}"
            yield f"{remove}{self.configuration.snakemake(targets)}{directory}"
