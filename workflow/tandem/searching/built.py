"""What must have been built before it can be used: which artifacts are missing, and the command that makes them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tandem.artifact import open_artifact
from tandem.errors import UserError
from tandem.plan.graph import Stage
from tandem.searching.words import Words


def is_built(stages: Iterable[Stage]) -> bool:
    """Whether all of some artifacts are finished."""
    return all(Path(stage.manifest).is_file() for stage in stages)


def require_built(stages: Iterable[Stage], wanted: set[tuple[str, str]], system: str, words: Words) -> None:
    """Refuse to begin before every artifact is finished and its files have the sizes that its manifest tells.

    Checksums are left to the stages: of a large corpus they would take longer than many searches.

    Args:
        stages: whose artifacts are read.
        wanted: (kind, key) of what the configuration asks for, which Snakemake knows without being told.
        system: the expression that asked.
        words: the command line, for the command that builds what is missing.
    Raises:
        UserError: one line with all that is missing and the command, or with the first file that is damaged.
    """
    needed = list(dict.fromkeys(stages))
    missing = [stage for stage in needed if not is_built([stage])]
    above = {other.key for stage in missing for other in _ancestors(stage)}
    if last := [stage for stage in missing if stage.key not in above]:
        known = all((stage.kind, stage.key) in wanted for stage in last)
        named = ", ".join(f"{stage.kind} {stage.key}" for stage in last)
        command = words.snakemake([stage.manifest for stage in last], "" if known else system)
        raise UserError(f"{system} cannot be used before {named} is built; build it: {command}")
    for stage in needed:
        _check_sizes(Path(stage.folder))


def _ancestors(stage: Stage) -> Iterator[Stage]:
    """Every stage that a stage is made from, directly or not."""
    for one in stage.upstream.values():
        yield one
        yield from _ancestors(one)


def _check_sizes(folder: Path) -> None:
    """Refuse an artifact with a file that is missing or of another size."""
    artifact = open_artifact(folder, verify=False)
    for name, told in artifact.manifest["files"].items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != told["bytes"]:
            raise UserError(f"{path}: missing or changed since it was written; delete {folder}/stage.json and rebuild")
