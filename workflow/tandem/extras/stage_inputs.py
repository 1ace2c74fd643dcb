"""The inputs of a stage's command line."""

from collections.abc import Mapping

from tandem.errors import UserError
from tandem.store.artifact import Artifact


class StageInputs(dict[str, Artifact]):
    """The inputs of a stage by role; reading an input that was not given raises a `UserError` that names its flag.

    Args:
        kind: the kind of stage.
    """

    def __init__(self, kind: str, artifacts: Mapping[str, Artifact]) -> None:
        super().__init__(artifacts)
        self.kind = kind

    def __missing__(self, role: str) -> Artifact:
        given = ", ".join(f"--in.{name}" for name in self) or "no input"
        raise UserError(f"{self.kind}: --in.{role} is missing; given is {given}")
