"""The command `verify`: everything below results/ against its manifests, byte by byte."""

import json
import shlex
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from cyclopts.validators import Number

from tandem.cluster.progress import PROGRESS_FILE, Progress
from tandem.cluster.threads import count_usable_cores
from tandem.data.fetch import format_bytes
from tandem.extras.operations import targets
from tandem.extras.operations.bundle import AGAIN, LIST, Bundle, read_bundle
from tandem.plan.graph import digest
from tandem.redaction import HIDDEN
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, RECORD, FileRecord, Manifest
from tandem.store.files import files_in, is_partial, sha256
from tandem.store.lineage import resolve_input

SMALL = 1 << 20  # bytes of an artifact whose files one thread reads: to hand each over would cost more
AHEAD = 64  # folders whose files are being read
LINES = 1000  # faults, and files to be removed, in a report
REBUILT = ("missing", "truncated", "changed", "damaged", "unfinished", "input")  # faults that building anew mends
# Beside an artifact's files, and no part of it: logs, and what a job that is killed leaves to go on from.
BESIDE = (MANIFEST, "log.txt", RECORD, PROGRESS_FILE, ".snakemake_timestamp")
DRAFTS = (".partial", ".scratch")
WORK = ("checkpoints", "state", "shards", "work", *DRAFTS)
LOCK = ".*.lock"  # held by a process that makes the artifact; one that is killed leaves it, free
HALF_WRITTEN = "was left half-written by a job that was ended"
SCORED_AGAIN = "delete it, its pairs will be scored again"


@dataclass(frozen=True)
class Fault:
    """A difference between results and their manifests."""

    folder: Path
    what: str  # `missing`, `truncated`, `changed`, `unknown`, `input`, `draft`, `unfinished`, `damaged` or `name`
    path: Path  # the file or folder in the artifact's `folder` that it is about
    why: str


class Examined(NamedTuple):
    """The findings about a folder that need no reading of its files."""

    folder: Path
    stamp: int  # `stamp` of the folder before it was looked at
    faults: list[Fault]
    files: dict[str, FileRecord]  # what is to be read and compared

    @property
    def bytes(self) -> int:
        """Expected size of the files."""
        return sum(file.bytes for file in self.files.values())


def verify(
    *places: str,
    quick: bool = False,
    threads: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    json_lines: Annotated[bool, Parameter(name="--json")] = False,
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
    names, files = targets.split_files(places)
    report, pool = Report(targets.Configuration(files)), ThreadPoolExecutor(threads or count_usable_cores())
    try:
        for root in [Path(name) for name in names] or [targets.RESULTS]:
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
    bundle, contents, total = read_bundle(root), Contents(), 0
    results = root / "results" if bundle else root
    folders = list(targets.artifact_folders(results)) if results.is_dir() or bundle is None else []
    report.artifacts += len(folders)
    for path in targets.leftovers(results):
        yield Fault(path, "draft", path, "was being deleted by `tandem gc`")
    listed = [examine_bundle(root, bundle)] if bundle else []
    artifacts = (examine(folder, contents, bundle.left_out if bundle else ()) for folder in folders)
    with Progress("verify", len(listed) + len(folders), "folders") as progress:
        for examined, comparisons in compared(chain(listed, artifacts), quick, pool):
            yield from examined.faults
            for comparison in comparisons:
                yield from comparison.result()
            total += examined.bytes
            progress.add(1, note=f"{format_bytes(total)} {'listed' if quick else 'read'}")


def compared(
    folders: Iterable[Examined], quick: bool, pool: Executor
) -> Iterator[tuple[Examined, list[Future[list[Fault]]]]]:
    """Folders and the comparisons of their files, in order; the next folders are looked at and read meanwhile."""
    waiting = deque[tuple[Examined, list[Future[list[Fault]]]]]()
    for examined in folders:
        parts = [list(examined.files)] if examined.bytes < SMALL else [[name] for name in examined.files]
        waiting.append((examined, [pool.submit(differing, examined, part, quick) for part in parts]))
        if len(waiting) > AHEAD:
            yield waiting.popleft()
    yield from waiting


def stamp(folder: Path) -> int:
    """The time at which an artifact's manifest was written, in nanoseconds; 0 without a manifest."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def examine_bundle(folder: Path, bundle: Bundle) -> Examined:
    """The files of an unpacked bundle, and those that neither belong to it nor to its table made again."""
    places, own = [path.relative_to(folder) for path in files_in(folder)], {*bundle.files, LIST}
    unlisted = [place for place in places if place.as_posix() not in own and place.parts[0] != AGAIN]
    faults = [Fault(folder, "unknown", folder / place, f"is not in {LIST}") for place in unlisted]
    return Examined(folder, stamp(folder), faults, bundle.files)


class Contents(dict[Path, str | None]):
    """The content of artifacts by folder, None without a manifest; each read once: thousands share a dataset."""

    def __missing__(self, folder: Path) -> str | None:
        manifest = targets.read_manifest(folder)
        return self.setdefault(folder, manifest.content if manifest else None)


def examine(folder: Path, contents: Contents, left_out: Container[str] = ()) -> Examined:
    """Look at an artifact or a store; of the artifacts in `left_out` only the manifest is there."""
    written, kind = stamp(folder), targets.kind_of(folder)
    if kind == targets.PAIRS:
        return Examined(folder, written, *_examine_store(folder))
    if kind == targets.ORDER:
        return Examined(folder, written, [], _order_files(folder))
    files, manifest = list(files_in(folder)), targets.read_manifest(folder)
    faults = list(_faults(folder, manifest, files, contents) if manifest else _unfinished(folder, files))
    drafts = [folder / name for name in DRAFTS if (folder / name).exists()]
    drafts += [path for path in files if is_partial(path.name) and path.relative_to(folder).parts[0] not in WORK]
    if drafts and not targets.is_running(folder):
        faults += [Fault(folder, "draft", path, HALF_WRITTEN) for path in drafts]
    return Examined(folder, written, faults, manifest.files if manifest and folder.name not in left_out else {})


def _unfinished(folder: Path, files: list[Path]) -> Iterator[Fault]:
    own = [path for path in files if path.name not in BESIDE and not path.match(LOCK)]
    if (folder / MANIFEST).exists():
        yield Fault(folder, "damaged", folder / MANIFEST, "is not a manifest; delete it and run its stage again")
    elif own and not targets.is_running(folder):
        why = f"holds {len(own):,} files and no {MANIFEST}: its job was ended, or files were purged"
        yield Fault(folder, "unfinished", folder, f"{why}; run its stage again")


def _faults(folder: Path, manifest: Manifest, files: list[Path], contents: Contents) -> Iterator[Fault]:
    """Another key, kind or parameters than the folder's name says; inputs of other bytes; files of no stage."""
    path, key, kind = folder / MANIFEST, folder.absolute().name, targets.kind_of(folder)
    if (manifest.key, manifest.kind) != (key, kind):
        why = f"is of {manifest.kind} {manifest.key}, its folder of {kind} {key}"
        yield Fault(folder, "name", path, f"{why}; the folder was renamed or copied over")
    elif HIDDEN not in str(manifest.params) and kind in KINDS:
        above = {role: Path(at).name.rpartition("-")[2] for role, at in manifest.upstream.items()}
        expected = digest(kind, manifest.version, manifest.params, above)
        if expected != key.rpartition("-")[2]:
            yield Fault(folder, "name", path, f"its parameters and inputs give {expected}, not the digest of its name")
    for role, before in manifest.inputs.items():
        source = resolve_input(folder, manifest.upstream[role])
        if (now := contents[source]) and now != before:  # a deleted input is no fault
            why = f"was made from {source.name} (as {role}) with content {before}; it has {now} now"
            yield Fault(folder, "input", source / MANIFEST, f"{why}: it was made again with other bytes")
    for path in files:
        name = path.relative_to(folder).as_posix()
        first = name.split("/")[0]
        block = first == "blocks" and name.removesuffix(".json") + ".npy" in manifest.files
        known = name in manifest.files or name in BESIDE or first in WORK or block
        if not known and not path.match(LOCK) and not is_partial(path.name):
            yield Fault(folder, "unknown", path, "is not in the manifest; no stage reads it")


def _examine_store(folder: Path) -> tuple[list[Fault], dict[str, FileRecord]]:
    """The faults of a store of pairs' scores by its files' names, and its parts, whose names are their checksums."""
    from tandem.retrieval.pair_store import PART_NAME, store_name

    what, why, files = "", "", dict[str, FileRecord]()
    try:
        identity = json.loads((folder / targets.STORE).read_text(encoding="utf-8"))
        if folder.absolute().name != store_name(identity["model"], identity["made_from"]):
            what, why = "changed", "does not give the store's name"
    except FileNotFoundError:
        what, why = "missing", "nothing says whose scores these are"
    except (OSError, ValueError, KeyError, TypeError):
        what, why = "damaged", "does not say whose scores these are"
    faults = [Fault(folder, what, folder / targets.STORE, f"{why}; the store: {SCORED_AGAIN}")] if what else []
    parts = [folder, folder / "queries"]  # that of pairs of queries
    for path in sorted(path for part in parts for path in part.glob("[!.]*.npy")):
        if match := PART_NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # merged with others meanwhile
                files[str(path.relative_to(folder))] = FileRecord(bytes=path.stat().st_size, sha256=match[1])
        else:
            faults.append(Fault(folder, "damaged", path, f"its name is not a checksum; {SCORED_AGAIN}"))
    drafts = list[Path]()
    for path in (path for part in parts for path in part.glob(".*")):
        with suppress(FileNotFoundError):  # finished meanwhile
            drafts += [path] if time.time() - path.stat().st_mtime > targets.ALIVE else []
    return faults + [Fault(folder, "draft", path, HALF_WRITTEN) for path in drafts], files


def _order_files(folder: Path) -> dict[str, FileRecord]:
    """The files of an order of ids; none of a half-made one, which the next job makes again."""
    try:
        files = json.loads((folder / "order.json").read_text(encoding="utf-8"))["files"]
        return {name: FileRecord(bytes=file["bytes"], sha256=file["sha256"]) for name, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def differing(examined: Examined, names: Iterable[str], quick: bool) -> list[Fault]:
    """The files that are missing, of another size or (unless `quick`) of other bytes; none if made again meanwhile."""
    faults = []
    for name in names:
        path, expected, what = examined.folder / name, examined.files[name], ""
        try:
            size = path.stat().st_size
            if size != expected.bytes:
                what = "truncated" if size < expected.bytes else "changed"
                why = f"has {size:,} bytes, {expected.bytes:,} in the manifest"
            elif not quick and (checksum := sha256(path)) != expected.sha256:
                what, why = "changed", f"has sha256 {checksum}, {expected.sha256} in the manifest"
        except OSError as error:
            what, why = "missing", f"cannot be read ({error.strerror}); {expected.bytes:,} bytes expected"
        if what:
            faults.append(Fault(examined.folder, what, path, why))
    return faults if stamp(examined.folder) == examined.stamp else []


@dataclass
class Report:
    """The faults for a person; `configuration` is repeated in the commands that mend them."""

    configuration: targets.Configuration
    artifacts: int = 0
    count: int = 0
    faults: list[Fault] = field(default_factory=list)  # the first
    damaged: dict[Path, None] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Count a fault and note what mends it."""
        self.count += 1
        if len(self.faults) < LINES:
            self.faults.append(fault)
        if fault.what in REBUILT and targets.kind_of(fault.folder) in KINDS:  # a store's fault says what to do
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
            by_project: dict[Path, list[Path]] = {}
            for folder in list(self.damaged)[:LINES]:
                by_project.setdefault(folder.absolute().parents[3], []).append(folder)
            for project, damaged in by_project.items():
                manifests = [str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()]
                remove = f"{shlex.join(['rm', *manifests])} && " if manifests else ""
                rebuilt = [str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged]
                directory = "" if project == Path.cwd() else f" --directory {shlex.quote(str(project))}"
                lines.append(f"{remove}{self.configuration.snakemake(rebuilt)}{directory}")
            if len(self.damaged) > LINES:
                lines.append(f"… and {len(self.damaged) - LINES:,} more: verify again after that")
        if removed := [str(fault.path) for fault in self.faults if fault.what in ("unknown", "draft")]:
            lines += ["\nTo remove what nobody reads:", shlex.join(["rm", "-r", *removed])]
        return "\n".join(lines) + "\n"
