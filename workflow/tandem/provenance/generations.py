"""Tables and sweeps whose rows are of different generations: other code, other libraries, a run that was made again."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tandem.artifact import MANIFEST, Artifact, open_artifact
from tandem.errors import UserError
from tandem.evaluation.layouts import system_name
from tandem.extras.sweeps.results import Result, label_point, read_result
from tandem.provenance.asked import SWEEPS
from tandem.provenance.faults import contents, resolve
from tandem.provenance.found import find, read_manifest
from tandem.report.results import Table, read_table
from tandem.reporting.lineage import Stage, walk

WHERE = ("python",)  # of `machine`, what may change a result
NAMED = 3  # keys or files in a line
Rows = dict[str, tuple[list[Artifact], list[str]]]  # what is found of each row's artifacts, and the keys of the others


def below(root: Path) -> Iterator[str]:
    """Warnings about the tables and sweeps below a folder of results; JSON files that are neither are passed over."""
    for path in sorted((root / "tables").rglob("*.json")):
        name = path.relative_to(root / "tables").with_suffix("").as_posix()
        try:
            rows = of_table(read_table(path), root.absolute().parent)
        except UserError:
            continue
        yield from of_rows(f"table {name}", path, rows)
    for path in sorted((root / SWEEPS).glob("*.json")):
        try:
            rows = of_sweep(read_result(path))
        except UserError:
            continue
        yield from of_rows(f"sweep {path.stem}", path, rows)


def of_table(table: Table, project: Path) -> Rows:
    """The scores that a table's rows show, those of the project's folder."""
    made: Rows = {}
    for row in table.rows:
        if row.lineage:
            beside = [((project / run.folder).parents[1] / "score" / run.scores, run.scores) for run in row.lineage]
            made[system_name((row.system, row.first_stage))] = _opened(beside)
    return made


def of_sweep(sweep: Result) -> Rows:
    """The runs that a sweep's rows show."""
    keys = {f"{line.system} at {label_point(line.point)}": line.stages for line in sweep.lines}
    return {row: _opened((Path(key), key) for key in own) for row, own in keys.items()}


def _opened(told: Iterable[tuple[Path, str]]) -> tuple[list[Artifact], list[str]]:
    """Artifacts in folders, else wherever their keys are; and the keys of those that are gone."""
    found, gone = [], []
    for folder, key in told:
        try:
            found.append(open_artifact(folder, verify=False) if folder.is_dir() else find(key))
        except UserError:
            gone.append(key)
    return found, gone


def of_rows(what: str, path: Path, rows: Rows) -> Iterator[str]:
    """Warnings about a table or sweep.

    Args:
        what: its name.
        path: the file that shows it.
        rows: what is behind it.
    """
    for row, (found, gone) in rows.items():
        if gone:
            yield f"{what}: row {row} shows {several(gone)}, which is deleted: it cannot be traced"
        for artifact in found:
            yield from _older(f"{what}: row {row}", path, artifact)
    stages = walk(artifact for found, _ in rows.values() for artifact in found)
    yield from mixed(what, {row: _above(stages, found) for row, (found, _) in rows.items()})


def _older(what: str, shown: Path, artifact: Artifact) -> Iterator[str]:
    """Whether a table was written before its score, or its score before the run that now stands there."""
    kind = artifact.manifest["kind"]
    if (artifact.folder / MANIFEST).stat().st_mtime > shown.stat().st_mtime:
        yield f"{what} is older than its {kind} {artifact.key}; run Snakemake again"
    for role, told in artifact.manifest.get("inputs", {}).items():
        above = resolve(artifact.folder, artifact.upstream[role])
        found = contents(read_manifest(above))
        if found and told not in found:
            again = f"delete the {kind}, and run again"
            yield f"{what}: {kind} {artifact.key} is of {above.name} before it was made again; {again}"


def _above(stages: dict[str, Stage], artifacts: list[Artifact]) -> list[Stage]:
    """Artifacts and all they were made from, each once."""
    found: dict[str, Stage] = {}
    waiting = [artifact.key for artifact in artifacts]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found[key] = stages[key]
            waiting += stages[key].upstream.values()
    return list(found.values())


def mixed(what: str, rows: dict[str, list[Stage]]) -> Iterator[str]:
    """Kinds that rows of one table have of different code, and libraries that they have of different versions."""
    code: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    libraries: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row, stages in rows.items():
        for stage in stages:
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


def several(names: list[str]) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _shared(made: dict[str, set[str]]) -> str:
    """`2.4.0 (3 rows), 2.5.1 (CE w/ DE Neg)`."""
    counted = Counter({name: len(rows) for name, rows in made.items()})
    return ", ".join(
        f"{name} ({count} rows)" if count > 1 else f"{name} ({next(iter(made[name]))})"
        for name, count in counted.most_common()
    )
