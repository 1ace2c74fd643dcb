"""The command `check`: results that a rerun might not reproduce."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import tandem
from tandem.cluster.progress import Progress, say
from tandem.errors import UserError
from tandem.evaluation.layouts import name_system
from tandem.extras.sweep_results import label_point, read_result
from tandem.extras.targets import (
    RESULTS,
    find_artifact,
    get_kind,
    iterate_artifact_folders,
    read_manifest,
)
from tandem.report.results import SWEEPS, read_table
from tandem.stages import KINDS
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.environment import (
    PACKAGE_FOLDER,
    ask_git,
    hash_module,
    modules_hash,
    sources,
    sources_of_kind,
)
from tandem.store.lineage import BuiltStage, resolve_input, walk


def check(*folders: Path, strict: bool = False) -> int:
    """Print a warning for every result that a rerun might not reproduce.

    A warning appears for every kind whose modules have changed since artifacts of the same version were made: raise the
    kind's version if their meaning changed. It also appears for tables whose rows were made by different code or by
    different versions of a library, and for tables that are older than the results they show.

    Args:
        folders: folders below which artifacts are looked for; results/ by default.
        strict: end with status 1 if there is a warning.
    """
    roots = list(folders) or [RESULTS]
    count = 0
    for line in chain(find_changed_code(roots), *map(find_mixed_generations, roots)):
        print(line, flush=True)
        count += 1
    if not count:
        print("no kind's code has moved under its artifacts, and no table mixes generations")
    return 1 if count and strict else 0


def find_changed_code(roots: Iterable[Path]) -> Iterator[str]:
    """Yield a line per kind and state of its code that made artifacts of today's version but differs from today's."""
    # kind, module reached by one of its names (none: its own) and the module's hash → artifacts, a commit
    keys: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    commits: dict[tuple[str, str, str], str] = {}
    folders = []
    unknown = Counter[str]()
    for root in roots:
        for folder in iterate_artifact_folders(root):
            if get_kind(folder) in KINDS:
                folders.append(folder)
            elif (folder / MANIFEST).is_file():
                unknown[get_kind(folder)] += 1
    for kind, count in unknown.items():
        say(f"{count:,} artifacts of {kind}, a kind of a plugin, are not compared with its code")
    with Progress("check", len(folders), "artifacts") as progress:
        for folder in folders:
            kind, manifest = get_kind(folder), read_manifest(folder)
            if manifest is None and (folder / MANIFEST).exists():
                yield f"{folder / MANIFEST}: is not a manifest; `tandem verify` says how to make it again"
            if manifest and manifest.modules and manifest.version == KINDS[kind].version:
                for module, digits in {"": manifest.modules, **manifest.looked_up}.items():
                    keys[kind, module, digits].append(folder.name)
                    if manifest.commit and not manifest.dirty:
                        commits.setdefault((kind, module, digits), manifest.commit)
            progress.add(1)
    for made, names in sorted(keys.items()):
        kind, module, digits = made
        now = hash_module(module) if module else modules_hash(kind)
        if digits != now:
            commit = commits.get(made)
            paths = sources(module) if module else sources_of_kind(kind)
            files = _list_changed(commit, paths) if commit and paths else []
            changed = (
                f" ({list_first_names(files)} changed since {commit[:10]})"
                if commit and files
                else ""
            )
            same = f"version {KINDS[kind].version} is the same; raise it in stages/ if the result's meaning changed"
            what = f"{module} at {digits}" if module else f"modules {digits}"
            yield f"{kind}: made by {what}, now {now or 'gone'}{changed}, but {same}: {list_first_names(names)}"


def _list_changed(commit: str, paths: tuple[Path, ...]) -> list[str]:
    """Return the files of `paths` that differ from a commit, relative to the package; empty if git cannot tell."""
    if not tandem.CHECKOUT:
        return []
    words = ("diff", "--name-only", "--relative", "--end-of-options", commit, "--")
    return (ask_git(PACKAGE_FOLDER, *words, *map(str, paths)) or "").split()


def list_first_names(names: list[str]) -> str:
    """Return the first three names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def find_mixed_generations(root: Path) -> Iterator[str]:
    """Yield warnings about the tables and sweeps below a folder of results; other JSON files are skipped.

    The tables of a named configuration are in a folder of its own.
    """
    own = {path.parent for block in ("tables", SWEEPS) for path in root.glob(f"*/{block}")}
    for folder in (root, *sorted(own)):
        yield from _find_mixed_below(folder, root.absolute())


def _find_mixed_below(root: Path, results: Path) -> Iterator[str]:
    """Yield warnings about the tables and sweeps of a configuration; `results` is the folder that is checked."""
    for path in [
        *sorted((root / "tables").rglob("*.json")),
        *sorted((root / SWEEPS).glob("*.json")),
    ]:
        place = path.relative_to(root).with_suffix("")
        name = place.relative_to(place.parts[0]).as_posix()
        of = "" if root.absolute() == results else f"{root.name}/"
        view = f"{place.parts[0].removesuffix('s')} {of}{name}"
        folders: dict[str, list[Path]] = {}
        with suppress(UserError):
            folders = _read_folders(path, results.parent, is_table=place.parts[0] == "tables")

        rows: dict[str, list[Artifact]] = {}
        for name, shown in folders.items():
            artifacts, deleted = list[Artifact](), list[str]()
            for folder in shown:
                try:
                    is_there = folder.is_dir()
                    artifacts.append(
                        open_artifact(folder, verify=False)
                        if is_there
                        # a configuration's own folder is next to those of datasets
                        else find_artifact(folder.name, (results, results.parent))
                    )
                except UserError:
                    deleted.append(folder.name)
            if deleted:
                yield f"{view}: row {name} shows {list_first_names(deleted)}, which is deleted: it cannot be traced"
            for artifact in artifacts:
                yield from _find_outdated(f"{view}: row {name}", path, artifact)
            rows[name] = artifacts

        stages = walk(chain.from_iterable(rows.values()))  # each read once: rows share most
        yield from _find_mixed(
            view, {name: _list_above(stages, artifacts) for name, artifacts in rows.items()}
        )


def _read_folders(path: Path, project: Path, is_table: bool) -> dict[str, list[Path]]:
    """Read the folders of the artifacts that each row of a table or a sweep shows."""
    folders: dict[str, list[Path]] = {}
    if not is_table:
        sweep = read_result(path)
        for line in sweep.lines:
            name = f"{line.system} at {label_point(line.point)}"
            folders[name] = [project / run for run in sweep.find_runs(line)]
        return folders
    for row in read_table(path).rows:
        if row.lineage:
            scores = [
                (project / run.folder).parents[1] / "score" / run.scores for run in row.lineage
            ]
            folders[name_system(row.id)] = scores
    return folders


def _list_above(stages: dict[str, BuiltStage], artifacts: list[Artifact]) -> list[BuiltStage]:
    """Return the stages that artifacts were made from, themselves included."""
    above: dict[str, BuiltStage] = {}
    waiting = [artifact.key for artifact in artifacts]
    while waiting:
        key = waiting.pop()
        if key not in above:
            above[key] = stages[key]
            waiting += stages[key].upstream.values()
    return list(above.values())


def _find_outdated(what: str, table: Path, artifact: Artifact) -> Iterator[str]:
    """Warn of a table that was written before its score, or a score before the run that is there now."""
    kind = artifact.kind
    if (artifact.folder / MANIFEST).stat().st_mtime > table.stat().st_mtime:
        yield f"{what} is older than its {kind} {artifact.key}; run Snakemake again"
    for role, content in artifact.manifest.inputs.items():
        above = resolve_input(artifact.folder, artifact.upstream[role])
        manifest = read_manifest(above)
        if manifest and manifest.content != content:
            again = f"delete the {kind}, and run again"
            yield f"{what}: {kind} {artifact.key} is of {above.name} before it was made again; {again}"


def _find_mixed(what: str, rows: dict[str, list[BuiltStage]]) -> Iterator[str]:
    """Warn of each kind whose code, and each library whose version, differs between the rows of one table."""
    values: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, stages in rows.items():
        for stage in stages:
            manifest = stage.artifact.manifest
            made = {"modules": manifest.modules, **manifest.looked_up}
            for module, digits in made.items():
                values[f"generations: {stage.kind} by {module}", manifest.version][digits].add(row)
            for library, version in {
                **manifest.libraries,
                "python": manifest.machine.python,
            }.items():
                values[f"versions of {library}:", 0][version].add(row)
    for (label, _), rows_by_value in sorted(values.items()):
        if len(rows_by_value) == 1:
            continue
        counted = []
        for value, names in sorted(rows_by_value.items(), key=lambda item: -len(item[1])):
            where = f"{len(names)} rows" if len(names) > 1 else next(iter(names))
            counted.append(f"{value} ({where})")
        yield f"{what} mixes {label} {', '.join(counted)}"
