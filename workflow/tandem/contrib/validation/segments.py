"""Stage `checkpoint`: a part of a training, which leaves its state for the next one."""

import math
from dataclasses import dataclass
from pathlib import Path

from tandem.errors import UserError
from tandem.stages.base import Json
from tandem.stages.training import ModelParams
from tandem.store.artifact import MANIFEST, Artifact
from tandem.store.files import sha256
from tandem.store.job import Job
from tandem.training.checkpoints import STEP, Checkpoints, State, read_state
from tandem.training.distributed import World
from tandem.training.loop import TrainingLoop
from tandem.training.stage import train_in

# next to an artifact's files: Snakemake removes it after the next job, and makes it again if need be
STATE = "state"


def run(job: Job[ModelParams]) -> None:
    """Train up to `until`, and write the model's parts, its log and its description."""
    with World.current().joined() as world:
        train_in(job, world, Segment)


@dataclass
class Segment(TrainingLoop):
    """Train one of several parts of equal length, up to rounding: the one that the parameter `until` names."""

    def __post_init__(self) -> None:
        super().__post_init__()
        part, parts = self.job.params.until
        if self.steps < parts:
            only = f"train.checkpoints is {parts}, but there are only {self.steps} steps"
            raise UserError(f"train {self.job.key}: {only}")
        self.last = math.ceil(self.steps * part / parts)

    def finish(self, state: State) -> None:
        """Leave the state for the next segment, and the selected weights in the models."""
        self.check_weights(state)
        left = Checkpoints(self.job.out / STATE, self.checkpoints.origin)
        left.remove()
        left.save(state, self.objective.models, self.optimizer)
        super().finish(state)

    def load_state(self) -> State:
        """Return what the newest checkpoint holds, else the state of the job before, else the start."""
        state = super().load_state()
        before = self.job.inputs.get("after")
        if not state.step and before is not None:
            newest = max(find_state(before).glob(f"{STEP}*"))
            state = read_state(newest, self.objective.models, self.optimizer)
        return state

    def describe_end(self) -> Json:
        """Return the files of the state."""
        return {STATE: list_state_files(self.job.out / STATE)}


def list_state_files(folder: Path) -> dict[str, str]:
    """Return sha256 of every file of a state, by its path in the folder, without the file that Snakemake adds."""
    return {
        str(path.relative_to(folder)): sha256(path) for path in sorted(folder.glob(f"{STEP}*/*"))
    }


def find_state(checkpoint: Artifact) -> Path:
    """Return the folder of a finished checkpoint's state; a `UserError` if its files differ from the manifest's."""
    folder = checkpoint.folder / STATE
    if list_state_files(folder) != checkpoint.manifest.facts[STATE]:
        problem = "is not what the manifest says" if folder.is_dir() else "is gone"
        raise UserError(
            f"{folder}: {problem}; delete {checkpoint.folder / MANIFEST} and let Snakemake make it again"
        )
    return folder
