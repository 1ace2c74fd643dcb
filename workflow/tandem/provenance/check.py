"""The command `check`: same key, other code; and tables whose rows are of different generations."""

import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tandem.artifact import Artifact, content, modules_hash, open_artifact
from tandem.errors import UserError
from tandem.kinds import KINDS
from tandem.provenance.faults import resolve
from tandem.provenance.found import RESULTS, find, kind_of, places, read_manifest
from tandem.reporting.layout import name as system_name
from tandem.reporting.lineage import Stage, walk
from tandem.reporting.results import from_json
from tandem.searching import words as command_line

PACKAGE = Path(__file__).parents[1]
WHERE = ("python",)  # of `machine`, what may change a result
NAMED = 3  # keys or files in a line


def main(words: list[str]) -> int:
    """`check [FOLDER …] [--strict]`: warns of results that a rerun might not give.

    Of every kind whose modules are others than when artifacts were made, at the same version: raise the kind's version
    if the meaning changed. Of tables whose rows were made by different code, or by different versions of a library, and
    of tables that are older than what they show.

    Args:
        words: folders below which artifacts are looked for, results/ if none is told; `--strict` ends with status 1 if
            there is a warning.
    """
    told = command_line.read(words, (), ("--strict",))
    roots = [Path(name) for name in told.names] or [RESULTS]
    warnings = list(moved([folder for root in roots for folder in places(root) if kind_of(folder) in KINDS]))
    for root in roots:
        for path in sorted((root / "tables").rglob("*.json")):
            warnings += of_table(
                path.relative_to(root / "tables").with_suffix("").as_posix(), path, root.absolute().parent
            )
    for line in warnings:
        print(line)
    if not warnings:
        print("no kind's code has moved under its artifacts, and no table mixes generations")
    return 1 if warnings and "--strict" in told.switches else 0


def moved(folders: Iterable[Path]) -> Iterator[str]:
    """A line for each kind and state of its code that made artifacts of today's version and is not today's."""
    made: dict[tuple[str, str], list[tuple[Path, dict[str, Any]]]] = defaultdict(list)
    for folder in folders:
        manifest = read_manifest(folder)
        if manifest and manifest.get("modules") and manifest["version"] == KINDS[kind_of(folder)].version:
            made[kind_of(folder), manifest["modules"]].append((folder, manifest))
    now = {kind: modules_hash(kind) for kind, _ in made}
    for (kind, modules), found in sorted(made.items()):
        if modules != now[kind]:
            keys = _several([folder.name for folder, _ in found])
            same = f"version {KINDS[kind].version} is the same; raise it in kinds.py if the result's meaning changed"
            changed = _changed(kind, found[0][1])
            yield f"{kind}: made by modules {modules}, now {now[kind]}{changed}, but {same}: {keys}"


def _changed(kind: str, manifest: dict[str, Any]) -> str:
    """The kind's files that differ from the commit that made an artifact, where git knows it."""
    if not manifest.get("commit") or manifest.get("dirty"):
        return ""
    paths = [str(PACKAGE / name) for name in KINDS[kind].modules]
    line = ["git", "-C", str(PACKAGE), "diff", "--name-only", "--relative", str(manifest["commit"]), "--", *paths]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    files = done.stdout.split()
    return f" ({_several(files)} changed since {manifest['commit'][:10]})" if files else ""


def _several(names: list[str]) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def of_table(name: str, path: Path, project: Path) -> Iterator[str]:
    """Warnings about one table of a project's folder; none for a JSON file that is no table."""
    try:
        table = from_json(path)
    except UserError:
        return
    rows = {
        system_name((row.system, row.first_stage)): _scores(row.lineage, project) for row in table.rows if row.lineage
    }
    for row, (found, gone) in rows.items():
        if gone:
            yield f"table {name}: row {row} shows {_several(gone)}, which is deleted: it cannot be traced"
        for artifact in found:
            yield from _older(f"table {name}: row {row}", path, artifact)
    stages = {row: walk(found) for row, (found, _) in rows.items()}
    yield from mixed(f"table {name}", stages)


def _scores(lineage: list[dict[str, Any]], project: Path) -> tuple[list[Artifact], list[str]]:
    """The scores that a row shows, and the keys of those that are gone."""
    found, gone = [], []
    for one in lineage:
        beside = (project / one["folder"]).parents[1] / "score" / one["scores"]
        try:
            found.append(open_artifact(beside, verify=False) if beside.is_dir() else find(one["scores"]))
        except UserError:
            gone.append(one["scores"])
    return found, gone


def _older(what: str, table: Path, score: Artifact) -> Iterator[str]:
    """Whether a table was written before its score, or its score before the run that now stands there."""
    if (score.folder / "stage.json").stat().st_mtime > table.stat().st_mtime:
        yield f"{what} is older than its score {score.key}; run Snakemake again"
    for role, told in score.manifest.get("inputs", {}).items():
        above = resolve(score.folder, score.upstream[role])
        manifest = read_manifest(above)
        if manifest is not None and content(manifest) != told:
            yield f"{what}: {score.key} scored {above.name} before it was made again; delete the score, and run again"


def mixed(what: str, rows: dict[str, dict[str, Stage]]) -> Iterator[str]:
    """Kinds that rows of one table have of different code, and libraries that they have of different versions."""
    code: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    libraries: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, stages in rows.items():
        for stage in stages.values():
            manifest = stage.artifact.manifest
            code[stage.kind, manifest["version"]][str(manifest.get("modules"))].add(row)
            told = {**manifest.get("libraries", {}), **{w: manifest.get("machine", {}).get(w) for w in WHERE}}
            for library, version in told.items():
                libraries[library][str(version)].add(row)
    for (kind, _), made in sorted(code.items()):
        if len(made) > 1:
            yield f"{what} mixes generations: {kind} by modules {_shared(made)}"
    for library, made in sorted(libraries.items()):
        if len(made) > 1:
            yield f"{what} mixes versions of {library}: {_shared(made)}"


def _shared(made: dict[str, set[str]]) -> str:
    """`2.4.0 (3 rows), 2.5.1 (CE w/ DE Neg)`."""
    counted = Counter({name: len(rows) for name, rows in made.items()})
    return ", ".join(
        f"{name} ({count} rows)" if count > 1 else f"{name} ({next(iter(made[name]))})"
        for name, count in counted.most_common()
    )
