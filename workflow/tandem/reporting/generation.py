"""What may stand in one table: scores of this version's making, and of the runs that are planned now."""

from pathlib import Path

from tandem.errors import UserError
from tandem.stages import KINDS
from tandem.store.artifact import Artifact, open_artifact


def open_scores(folder: str, run: str = "") -> Artifact:
    """A score artifact, verified; `run` is the key that its scores must be of, if it is known.

    Raises:
        UserError: it is not what its folder's name says, of another version's making, or of another run than planned.
    """
    artifact = open_artifact(Path(folder), "score")
    manifest = artifact.manifest
    if manifest.key != artifact.key:
        raise UserError(f"{artifact.folder}: its manifest is of {manifest.key}; delete the folder and run again")
    if manifest.version != KINDS["score"].version:
        now = KINDS["score"].version
        raise UserError(f"{artifact.folder}: was made by version {manifest.version} of score, now {now}; run again")
    made = Path(artifact.upstream.get("run", "")).name
    if run and made != run:
        raise UserError(f"{artifact.folder}: scores run {made}, but planned is {run}; a table never mixes generations")
    return artifact
