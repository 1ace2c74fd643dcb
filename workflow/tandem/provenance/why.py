"""The command `why`: what makes an artifact another than its nearest sibling, or a row another than another row."""

from tandem.errors import UserError
from tandem.provenance.asked import ask
from tandem.store.artifact import MANIFEST, Artifact, open_artifact
from tandem.store.lineage import causes, differences_beside_keys, explain, stage_name


def main(words: list[str]) -> int:
    """`why A [B]`: prints why A is another than B, or than its nearest sibling.

    A and B are folders, keys below results/, or rows of tables and sweeps as `lineage` takes them: of several seeds the
    first is told, against the other row's nearest. The nearest sibling has the same dataset, kind and name and the
    fewest differing roots; among equals, one finished before A, then the one finished last.
    """
    if len(words) not in (1, 2):
        raise UserError(f"why: takes one or two artifacts (folders, keys or tables' rows), {len(words)} were given")
    artifact, two = ask(words[0]).artifacts[0], len(words) == 2
    others = ask(words[1]).artifacts if two else siblings(artifact)
    if not others:
        told = f"no other {artifact.manifest.kind} named {stage_name(artifact.key)} is finished beside it"
        print(f"{artifact.key} has no sibling: {told}")
        return 0
    nearest = min(others, key=lambda other: _distance(artifact, other, two))
    found = list(causes(artifact, nearest, renamed=two))
    if not found:
        more = list(differences_beside_keys(artifact, nearest)) if artifact.folder.absolute() != nearest.folder.absolute() else []
        print(f"{artifact.key} does not differ from {nearest.key}{' in what its key tells, but:' if more else ''}")
        for line in more:
            print(f"  {line}")
    for line in explain(artifact, nearest, found):
        print(line)
    return 0


def siblings(artifact: Artifact) -> list[Artifact]:
    """Finished artifacts of the same dataset, kind and name."""
    own = artifact.folder
    beside = sorted(path.parent for path in own.absolute().parent.glob(f"*/{MANIFEST}"))
    named = [path for path in beside if path.name != own.name and stage_name(path.name) == stage_name(own.name)]
    return [open_artifact(path, verify=False) for path in named]


def _distance(artifact: Artifact, other: Artifact, renamed: bool) -> tuple[int, bool, list[int], str]:
    """How far a sibling is: the number of roots, then whether it is younger, then how long ago it finished."""
    finished = other.manifest.finished
    recent = [-ord(character) for character in finished]
    roots = len(list(causes(artifact, other, renamed)))
    return roots, finished > artifact.manifest.finished, recent, other.key
