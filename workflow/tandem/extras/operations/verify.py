"""The command `verify`: everything below results/ against its manifests, byte by byte."""

import json
import os
import shlex
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from tandem.cluster.progress import Progress
from tandem.data.fetch import readable
from tandem.extras.operations import scan
from tandem.extras.operations.bundle import Bundle
from tandem.extras.operations.configurations import Configuration, split_files
from tandem.extras.operations.scan import RESULTS, Fault, Task, kind_of, stamp
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST
from tandem.store.files import files_in, sha256

BATCH, FILES = 1 << 20, 256  # bytes, and files, that a thread gets at once: small ones cost more to hand over
AHEAD = 64  # batches that wait for a thread
LINES = 1000  # faults, and files to be removed, in a report
REBUILT = ("missing", "truncated", "changed", "damaged", "unfinished", "input")  # faults that building anew mends
REMOVED = ("unknown", "draft")

Item = Task | Fault | None  # None ends what progress counts: an artifact


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
    report = Report(Configuration(files))
    for root in [Path(name) for name in names] or [RESULTS]:
        for fault in below(root, threads or os.cpu_count() or 1, quick, report):
            report.add(fault)
            if json_lines:
                print(json.dumps(asdict(fault), default=str, ensure_ascii=False), flush=True)
    if not json_lines:
        print(report.text(), end="")
    return 1 if report.count else 0


def below(root: Path, threads: int, quick: bool, report: "Report") -> Iterator[Fault]:
    """The faults below a folder; the report counts the artifacts."""
    bundle = Bundle.at(root)
    if bundle is not None:
        yield from bundle_faults(bundle, threads)
        root = bundle.results
    folders = list(scan.artifact_folders(root)) if root.is_dir() or bundle is None else []
    report.artifacts += len(folders)
    for path in scan.leftovers(root):
        yield Fault(path, "draft", path, "was being deleted by `tandem gc`")
    with Progress("verify", len(folders), "artifacts") as progress:
        yield from compared(examined(folders, bundle.left_out if bundle else ()), threads, quick, progress)


def bundle_faults(bundle: Bundle, threads: int) -> list[Fault]:
    """Files of an unpacked bundle that are missing, changed or not listed."""
    items = (item for name, file in bundle.files.items() for item in (Task(bundle.folder, name, file), None))
    with Progress(f"verify {bundle.list_path.name}", len(bundle.files), "files") as progress:
        differing = list(compared(items, threads, False, progress))
    unlisted = [path for path in files_in(bundle.folder) if not bundle.lists(path)]
    return differing + [
        Fault(bundle.folder, "unknown", path, f"is not in {bundle.list_path.name}") for path in unlisted
    ]


def examined(folders: list[Path], left_out: Collection[str]) -> Iterator[Item]:
    """The faults that show without reading files, and the files that are to be read, folder by folder."""
    inputs = scan.Inputs()
    for folder in folders:
        kind = kind_of(folder)
        if kind == scan.PAIRS:
            yield from scan.pair_store_items(folder)
        elif kind == scan.ORDER:
            yield from scan.order_items(folder)
        else:
            yield from of_artifact(folder, inputs, left_out)
        yield None


def of_artifact(folder: Path, inputs: scan.Inputs, left_out: Collection[str]) -> Iterator[Item]:
    """The faults of an artifact that its manifest shows, then its files."""
    written, manifest = stamp(folder), scan.read_manifest(folder)
    if manifest is None:
        yield from scan.faults_of_unfinished(folder)
        return
    files = list(files_in(folder))
    yield from scan.faults_of_manifest(folder, manifest)
    yield from inputs.faults(folder, manifest)
    yield from scan.unknown_files(folder, manifest, files)
    yield from scan.drafts(folder, files)
    if folder.name not in left_out:
        for name, expected in manifest.files.items():
            yield Task(folder, name, expected, written)


class Compared(NamedTuple):
    """What came of a batch: bytes that were read, artifacts that ended in it, faults."""

    bytes: int
    ended: int
    faults: list[Fault]


def compared(items: Iterable[Item], threads: int, quick: bool, progress: Progress) -> Iterator[Fault]:
    """The faults among the items, and files that are missing or differ: all in the order of the items."""
    total, work = 0, partial(compare_all, compare_sizes if quick else compare)
    with ThreadPoolExecutor(threads) as pool:
        for size, ended, batch_faults in _streamed(pool, work, _batches(items)):
            total += size
            progress.add(ended, note=f"{readable(total)} {'listed' if quick else 'read'}")
            yield from batch_faults


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += item.expected.bytes if isinstance(item, Task) else 0
        if size >= BATCH or len(batch) >= FILES:
            yield batch
            batch, size = [], 0
    yield batch


def _streamed(
    pool: ThreadPoolExecutor, work: Callable[[list[Item]], Compared], batches: Iterable[list[Item]]
) -> Iterator[Compared]:
    waiting: deque[Future[Compared]] = deque()
    for batch in batches:
        waiting.append(pool.submit(work, batch))
        if len(waiting) >= AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def compare_all(compare_file: Callable[[Task], Fault | None], batch: list[Item]) -> Compared:
    """What came of a batch; no faults of an artifact that was deleted or made again meanwhile."""
    size, batch_faults = 0, list[Fault]()
    for item in batch:
        if isinstance(item, Fault):
            batch_faults.append(item)
        elif item is not None:
            size += item.expected.bytes
            fault = compare_file(item)
            if fault and (not item.stamp or stamp(item.folder) == item.stamp):
                batch_faults.append(fault)
    return Compared(size, batch.count(None), batch_faults)


def compare_sizes(task: Task) -> Fault | None:
    """The fault of a file that is missing or of another size."""
    path, expected = task.folder / task.name, task.expected.bytes
    try:
        size = path.stat().st_size
    except OSError as error:
        return Fault(task.folder, "missing", path, f"cannot be read ({error.strerror}); {expected:,} bytes expected")
    if size != expected:
        what = "truncated" if size < expected else "changed"
        return Fault(task.folder, what, path, f"has {size:,} bytes, {expected:,} in the manifest")
    return None


def compare(task: Task) -> Fault | None:
    """The fault of a file that differs from its manifest."""
    if fault := compare_sizes(task):
        return fault
    path = task.folder / task.name
    try:
        digest = sha256(path)
    except OSError as error:
        return Fault(task.folder, "missing", path, f"cannot be read ({error.strerror})")
    if digest != task.expected.sha256:
        return Fault(task.folder, "changed", path, f"has sha256 {digest}, {task.expected.sha256} in the manifest")
    return None


@dataclass
class Report:
    """The faults for a person: the first in words, the number of the others, and what mends them.

    Attributes:
        configuration: repeated in the commands.
        artifacts: how many were looked at.
        damaged: folders that must be made anew, in the order of the faults.
        removed: the first of the files and folders that no stage reads.
    """

    configuration: Configuration
    artifacts: int = 0
    count: int = 0
    lines: list[str] = field(default_factory=list)
    damaged: dict[Path, None] = field(default_factory=dict)
    removed: list[Path] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Count a fault and note what mends it."""
        self.count += 1
        if len(self.lines) < LINES:
            self.lines.append(f"{fault.what:<10} {fault.path}: {fault.why}")
        if fault.what in REBUILT and kind_of(fault.folder) in KINDS:  # a pair store's fault says itself what to do
            self.damaged[fault.folder] = None
        if fault.what in REMOVED and len(self.removed) < LINES:
            self.removed.append(fault.path)

    def text(self) -> str:
        """The faults, and how to mend them."""
        if not self.count:
            return f"{self.artifacts:,} artifacts are what their manifests say\n"
        lines = list(self.lines)
        if self.count > LINES:
            lines.append(f"… and {self.count - LINES:,} more: --json tells all")
        if self.damaged:
            lines.append("\nTo build anew what is damaged (what was made from it keeps its bytes if it gets the same):")
            lines += self._rebuild(list(self.damaged)[:LINES])
            if len(self.damaged) > LINES:
                lines.append(f"… and {len(self.damaged) - LINES:,} more: verify again after that")
        if self.removed:
            lines += ["\nTo remove what nobody reads:", shlex.join(["rm", "-r", *map(str, self.removed)])]
        return "\n".join(lines) + "\n"

    def _rebuild(self, folders: list[Path]) -> list[str]:
        by_project: dict[Path, list[Path]] = {}
        for folder in folders:
            by_project.setdefault(folder.absolute().parents[3], []).append(folder)
        lines = []
        for project, damaged in by_project.items():
            manifests = [str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()]
            targets = [str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged]
            build = self.configuration.snakemake(targets)
            if project != Path.cwd():
                build += f" --directory {shlex.quote(str(project))}"
            lines.append(" && ".join([*([shlex.join(["rm", *manifests])] if manifests else []), build]))
        return lines
