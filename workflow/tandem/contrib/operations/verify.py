"""The command `verify`: compare everything below results/ with its manifests, byte by byte."""

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

from tandem.cluster.progress import Progress
from tandem.cluster.threads import count_usable_cores
from tandem.contrib.operations.bundle import BUNDLE_FILE, REMADE_FOLDER, Bundle, read_bundle
from tandem.errors import UserError
from tandem.extras import targets
from tandem.extras.byte_sizes import format_bytes
from tandem.extras.running.progress_files import PROGRESS_FILE
from tandem.plan.graph import digest
from tandem.redaction import HIDDEN
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, RECORD, FileRecord, Manifest
from tandem.store.files import files_in, is_partial, sha256
from tandem.store.lineage import resolve_input

# size up to which one thread reads all files of an artifact: handing over each would cost more
_SMALL_BYTES = 1 << 20
_FOLDERS_AHEAD = 64  # folders whose files are read ahead
_REPORTED_LINES = 1000  # faults, and files to remove, in a report
# faults that a rebuild repairs
_REBUILT_FAULTS = ("missing", "truncated", "changed", "damaged", "unfinished", "input")
# Files next to an artifact's own that do not belong to it: logs, and the state that a killed job leaves to resume from.
_FILES_BESIDE = (MANIFEST, "log.txt", RECORD, PROGRESS_FILE, ".snakemake_timestamp")
_DRAFTS = (".partial", ".scratch")
_WORK_FOLDERS = ("checkpoints", "state", "shards", "work", *_DRAFTS)
# held by a process that makes the artifact; a killed process leaves the file unlocked
_LOCK_PATTERN = ".*.lock"
HALF_WRITTEN = "was left half-written by a job that was ended"
SCORED_AGAIN = "delete it, its pairs will be scored again"


@dataclass(frozen=True)
class Fault:
    """A difference between results and their manifests."""

    folder: Path
    # `missing`, `truncated`, `changed`, `unknown`, `input`, `draft`, `unfinished`, `damaged` or `name`
    what: str
    path: Path  # the affected file or folder in the artifact's `folder`
    why: str


class Examined(NamedTuple):
    """The findings about a folder that do not require reading its files."""

    folder: Path
    stamp: int  # `read_stamp` of the folder before it was examined
    faults: list[Fault]
    files: dict[str, FileRecord]  # files to be read and compared

    @property
    def bytes(self) -> int:
        """Return the expected size of the files."""
        return sum(file.bytes for file in self.files.values())


def verify(
    *places: str,
    quick: bool = False,
    threads: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    json_lines: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Compare everything below results/ with its manifests, byte by byte; exit status 1 if anything differs.

    Reports files that are missing, truncated, changed or unknown, half-written drafts, artifacts whose input was made
    again with other bytes, and manifests that do not fit their folder's name; and the command that rebuilds damaged
    artifacts.

    Args:
        places: folders below which every file is read (a dataset, an artifact, an unpacked bundle), by default
            results/; YAML files are repeated in the command that rebuilds.
        quick: compare only sizes.
        threads: number of threads that read files; by default the number of cores.
        json_lines: print a line of JSON per fault, as soon as it is found.
    """
    names, files = targets.split_files(places)
    report = Report(targets.Configuration(files))
    pool = ThreadPoolExecutor(threads or count_usable_cores())
    roots = [Path(name) for name in names] or [targets.RESULTS]
    try:
        for root in roots:
            for fault in find_faults(root, quick, pool, report):
                report.add(fault)
                if json_lines:
                    print(json.dumps(asdict(fault), default=str, ensure_ascii=False), flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    if names and not report.artifacts and not report.count:
        hint = "give results/ or a folder below it, or an unpacked bundle"
        raise UserError(f"{', '.join(names)}: no artifact is there; {hint}")
    if not json_lines:
        print(report.text(), end="")
    return 1 if report.count else 0


def find_faults(root: Path, quick: bool, pool: Executor, report: "Report") -> Iterator[Fault]:
    """Yield the faults below a folder, artifact by artifact; the report counts the artifacts."""
    bundle, contents, total = read_bundle(root), Contents(), 0
    results = root / "results" if bundle else root
    folders = (
        list(targets.iterate_artifact_folders(results))
        if results.is_dir() or bundle is None
        else []
    )
    report.artifacts += len(folders)
    for path in targets.list_leftovers(results):
        yield Fault(path, "draft", path, "was being deleted by `tandem gc`, or unpacked")
    listed = [examine_bundle(root, bundle)] if bundle else []
    artifacts = (examine(folder, contents, bundle.left_out if bundle else ()) for folder in folders)
    with Progress("verify", len(listed) + len(folders), "folders") as progress:
        for examined, comparisons in compare_folders(chain(listed, artifacts), quick, pool):
            yield from examined.faults
            for comparison in comparisons:
                yield from comparison.result()
            total += examined.bytes
            progress.add(1, note=f"{format_bytes(total)} {'listed' if quick else 'read'}")


def compare_folders(
    folders: Iterable[Examined], quick: bool, pool: Executor
) -> Iterator[tuple[Examined, list[Future[list[Fault]]]]]:
    """Yield folders and the comparisons of their files, in order; the next folders are examined and read meanwhile."""
    waiting = deque[tuple[Examined, list[Future[list[Fault]]]]]()
    for examined in folders:
        parts = (
            [list(examined.files)]
            if examined.bytes < _SMALL_BYTES
            else [[name] for name in examined.files]
        )
        waiting.append(
            (examined, [pool.submit(find_differing, examined, part, quick) for part in parts])
        )
        if len(waiting) > _FOLDERS_AHEAD:
            yield waiting.popleft()
    yield from waiting


def read_stamp(folder: Path) -> int:
    """Return the time at which an artifact's manifest was written, in nanoseconds; 0 without a manifest."""
    try:
        return (folder / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def examine_bundle(folder: Path, bundle: Bundle) -> Examined:
    """Return the files of an unpacked bundle, and files that belong neither to it nor to its reproduced table."""
    places, own = (
        [path.relative_to(folder) for path in files_in(folder)],
        {*bundle.files, BUNDLE_FILE},
    )
    unlisted = [
        place for place in places if place.as_posix() not in own and place.parts[0] != REMADE_FOLDER
    ]
    faults = [
        Fault(folder, "unknown", folder / place, f"is not in {BUNDLE_FILE}") for place in unlisted
    ]
    return Examined(folder, read_stamp(folder), faults, bundle.files)


class Contents(dict[Path, str | None]):
    """The content of artifacts by folder, None without a manifest; each is read once, when it is looked up."""

    def __missing__(self, folder: Path) -> str | None:
        manifest = targets.read_manifest(folder)
        return self.setdefault(folder, manifest.content if manifest else None)


def examine(folder: Path, contents: Contents, left_out: Container[str] = ()) -> Examined:
    """Examine an artifact or a store; of the artifacts in `left_out` only the manifest exists."""
    written, kind = read_stamp(folder), targets.get_kind(folder)
    if kind == targets.PAIRS:
        return Examined(folder, written, *_examine_store(folder))
    if kind == targets.ORDER:
        return Examined(folder, written, [], _read_order_files(folder))
    files, manifest = list(files_in(folder)), targets.read_manifest(folder)
    faults = list(
        _find_artifact_faults(folder, manifest, files, contents)
        if manifest
        else _find_unfinished(folder, files)
    )
    drafts = [folder / name for name in _DRAFTS if (folder / name).exists()]
    drafts += [
        path
        for path in files
        if is_partial(path.name) and path.relative_to(folder).parts[0] not in _WORK_FOLDERS
    ]
    if drafts and not targets.is_running(folder):
        faults += [Fault(folder, "draft", path, HALF_WRITTEN) for path in drafts]
    return Examined(
        folder, written, faults, manifest.files if manifest and folder.name not in left_out else {}
    )


def _find_unfinished(folder: Path, files: list[Path]) -> Iterator[Fault]:
    own = [
        path for path in files if path.name not in _FILES_BESIDE and not path.match(_LOCK_PATTERN)
    ]
    if (folder / MANIFEST).exists():
        yield Fault(
            folder,
            "damaged",
            folder / MANIFEST,
            "is not a manifest; delete it and run its stage again",
        )
    elif own and not targets.is_running(folder):
        why = f"holds {len(own):,} files and no {MANIFEST}: its job was ended, or files were purged"
        yield Fault(folder, "unfinished", folder, f"{why}; run its stage again")


def _find_artifact_faults(
    folder: Path, manifest: Manifest, files: list[Path], contents: Contents
) -> Iterator[Fault]:
    """Yield faults: another key, kind or parameters than the folder's name; inputs of other bytes; unknown files."""
    path, key, kind = folder / MANIFEST, folder.absolute().name, targets.get_kind(folder)
    if (manifest.key, manifest.kind) != (key, kind):
        why = f"is of {manifest.kind} {manifest.key}, its folder of {kind} {key}"
        yield Fault(folder, "name", path, f"{why}; the folder was renamed or copied over")
    elif HIDDEN not in str(manifest.params) and kind in KINDS:
        above = {role: Path(at).name.rpartition("-")[2] for role, at in manifest.upstream.items()}
        expected = digest(kind, manifest.version, manifest.params, above)
        if expected != key.rpartition("-")[2]:
            yield Fault(
                folder,
                "name",
                path,
                f"its parameters and inputs give {expected}, not the digest of its name",
            )
    for role, before in manifest.inputs.items():
        source = resolve_input(folder, manifest.upstream[role])
        now = contents[source]
        if now and now != before:  # a deleted input is not a fault
            why = f"was made from {source.name} (as {role}) with content {before}; it has {now} now"
            yield Fault(
                folder, "input", source / MANIFEST, f"{why}: it was made again with other bytes"
            )
    for path in files:
        name = path.relative_to(folder).as_posix()
        first = name.split("/")[0]
        block = first == "blocks" and name.removesuffix(".json") + ".npy" in manifest.files
        known = name in manifest.files or name in _FILES_BESIDE or first in _WORK_FOLDERS or block
        if not known and not path.match(_LOCK_PATTERN) and not is_partial(path.name):
            yield Fault(folder, "unknown", path, "is not in the manifest; no stage reads it")


def _examine_store(folder: Path) -> tuple[list[Fault], dict[str, FileRecord]]:
    """Examine a store of pairs' scores by its files' names, and its parts, whose names are their checksums."""
    from tandem.retrieval.pair_store import PART_NAME, store_name

    faults, files = list[Fault](), dict[str, FileRecord]()
    store = folder / targets.STORE
    problem: tuple[str, str] | None = None
    try:
        identity = json.loads(store.read_text(encoding="utf-8"))
        if folder.absolute().name != store_name(identity["model"], identity["made_from"]):
            problem = "changed", "does not give the store's name"
    except FileNotFoundError:
        problem = "missing", "nothing says whose scores these are"
    except (OSError, ValueError, KeyError, TypeError):
        problem = "damaged", "does not say whose scores these are"
    if problem:
        faults.append(Fault(folder, problem[0], store, f"{problem[1]}; the store: {SCORED_AGAIN}"))

    for part in (folder, folder / "queries"):  # the second holds pairs of queries
        for path in sorted(part.glob("[!.]*.npy")):
            match = PART_NAME.fullmatch(path.name)
            if not match:
                faults.append(
                    Fault(folder, "damaged", path, f"its name is not a checksum; {SCORED_AGAIN}")
                )
                continue
            with suppress(FileNotFoundError):  # it may be merged with others meanwhile
                files[str(path.relative_to(folder))] = FileRecord(
                    bytes=path.stat().st_size, sha256=match[1]
                )
        for path in part.glob(".*"):
            with suppress(FileNotFoundError):  # it may be finished meanwhile
                if time.time() - path.stat().st_mtime > targets.ALIVE_SECONDS:
                    faults.append(Fault(folder, "draft", path, HALF_WRITTEN))
    return faults, files


def _read_order_files(folder: Path) -> dict[str, FileRecord]:
    """Return the files of an order of ids; none if it is incomplete, since the next job makes it again."""
    try:
        files = json.loads((folder / "order.json").read_text(encoding="utf-8"))["files"]
        return {
            name: FileRecord(bytes=file["bytes"], sha256=file["sha256"])
            for name, file in files.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def find_differing(examined: Examined, names: Iterable[str], quick: bool) -> list[Fault]:
    """Return the files that are missing, of another size or (unless `quick`) of other bytes; none if remade since."""
    faults = []
    for name in names:
        path, expected = examined.folder / name, examined.files[name]
        try:
            size = path.stat().st_size
            if size != expected.bytes:
                kind = "truncated" if size < expected.bytes else "changed"
                why = f"has {size:,} bytes, {expected.bytes:,} in the manifest"
                faults.append(Fault(examined.folder, kind, path, why))
                continue
            if quick:
                continue
            checksum = sha256(path)
            if checksum != expected.sha256:
                why = f"has sha256 {checksum}, {expected.sha256} in the manifest"
                faults.append(Fault(examined.folder, "changed", path, why))
        except OSError as error:
            why = f"cannot be read ({error.strerror}); {expected.bytes:,} bytes expected"
            faults.append(Fault(examined.folder, "missing", path, why))
    return faults if read_stamp(examined.folder) == examined.stamp else []


@dataclass
class Report:
    """Reports the faults to a person; `configuration` is repeated in the commands that repair them."""

    configuration: targets.Configuration
    artifacts: int = 0
    count: int = 0
    faults: list[Fault] = field(default_factory=list)  # only the first ones
    damaged: dict[Path, None] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        """Count a fault and note its repair."""
        self.count += 1
        if len(self.faults) < _REPORTED_LINES:
            self.faults.append(fault)
        # a store's fault states its remedy; a plugin's kind may be unknown
        is_made = targets.get_kind(fault.folder) in KINDS or (fault.folder / MANIFEST).exists()
        if fault.what in _REBUILT_FAULTS and is_made:
            self.damaged[fault.folder] = None

    def text(self) -> str:
        """Return the faults, and how to repair them."""
        if not self.count:
            return f"{self.artifacts:,} artifacts are what their manifests say\n"
        lines = [f"{fault.what:<10} {fault.path}: {fault.why}" for fault in self.faults]
        if self.count > _REPORTED_LINES:
            lines.append(f"… and {self.count - _REPORTED_LINES:,} more: --json tells all")
        if self.damaged:
            lines.append(
                "\nTo build anew what is damaged (what was made from it keeps its bytes if it gets the same):"
            )
            by_project: dict[Path, list[Path]] = {}
            for folder in list(self.damaged)[:_REPORTED_LINES]:
                by_project.setdefault(folder.absolute().parents[3], []).append(folder)
            for project, damaged in by_project.items():
                manifests = [
                    str(folder / MANIFEST) for folder in damaged if (folder / MANIFEST).exists()
                ]
                remove = f"{shlex.join(['rm', *manifests])} && " if manifests else ""
                rebuilt = [
                    str(folder.absolute().relative_to(project) / MANIFEST) for folder in damaged
                ]
                directory = (
                    "" if project == Path.cwd() else f" --directory {shlex.quote(str(project))}"
                )
                lines.append(f"{remove}{self.configuration.snakemake(rebuilt)}{directory}")
            if len(self.damaged) > _REPORTED_LINES:
                lines.append(
                    f"… and {len(self.damaged) - _REPORTED_LINES:,} more: verify again after that"
                )
        if removed := [
            str(fault.path) for fault in self.faults if fault.what in ("unknown", "draft")
        ]:
            lines += ["\nTo remove what nobody reads:", shlex.join(["rm", "-r", *removed])]
        return "\n".join(lines) + "\n"
