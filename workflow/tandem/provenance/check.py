"""The command `check`: same key, other code; and tables whose rows are of different generations."""

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tandem.cluster.progress import Progress
from tandem.provenance import generations
from tandem.provenance.found import RESULTS, kind_of, places, read_manifest
from tandem.provenance.generations import several
from tandem.searching import words as command_line
from tandem.stages import KINDS
from tandem.store.environment import modules_hash, sources

PACKAGE = Path(__file__).parents[1]


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
    count = 0
    for line in chain(moved(roots), *map(generations.below, roots)):
        print(line, flush=True)
        count += 1
    if not count:
        print("no kind's code has moved under its artifacts, and no table mixes generations")
    return 1 if count and "--strict" in told.switches else 0


def moved(roots: Iterable[Path]) -> Iterator[str]:
    """A line for each kind and state of its code that made artifacts of today's version and is not today's."""
    made: dict[tuple[str, str], list[str]] = defaultdict(list)
    commits: dict[tuple[str, str], str] = {}
    for folder, manifest in manifests(roots):
        kind = kind_of(folder)
        if manifest and manifest.get("modules") and manifest["version"] == KINDS[kind].version:
            code = kind, str(manifest["modules"])
            made[code].append(folder.name)
            if manifest.get("commit") and not manifest.get("dirty"):
                commits.setdefault(code, str(manifest["commit"]))
    now = {kind: modules_hash(kind) for kind, _ in made}
    for (kind, modules), keys in sorted(made.items()):
        if modules != now[kind]:
            same = f"version {KINDS[kind].version} is the same; raise it in stages/ if the result's meaning changed"
            changed = _changed(kind, commits.get((kind, modules)))
            yield f"{kind}: made by modules {modules}, now {now[kind]}{changed}, but {same}: {several(keys)}"


def manifests(roots: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The artifacts below folders with their manifests, one after the other; None for one that is not finished."""
    folders = [folder for root in roots for folder in places(root) if kind_of(folder) in KINDS]
    with Progress("check", len(folders), "artifacts") as progress:
        for folder in folders:
            yield folder, read_manifest(folder)
            progress.add(1)


def _changed(kind: str, commit: str | None) -> str:
    """The kind's files that differ from the commit that made an artifact, where there is one and git knows it."""
    if commit is None:
        return ""
    paths = [str(path) for path in sources(kind)]
    line = ["git", "-C", str(PACKAGE), "diff", "--name-only", "--relative", "--end-of-options", commit, "--", *paths]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    files = done.stdout.split()
    return f" ({several(files)} changed since {commit[:10]})" if files else ""
