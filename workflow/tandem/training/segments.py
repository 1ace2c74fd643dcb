"""A training in several jobs: each goes on from the state that the one before it left, with the same bits.

The state (weights, the optimizer's moments, step, log) lies beside the artifact in `state/`, not in it: Snakemake
removes it when the next job is done, and makes it again should that job have to run again.
"""

import shutil
from pathlib import Path

import torch
from torch import nn

from tandem.errors import UserError
from tandem.store.artifact import MANIFEST, Artifact
from tandem.store.files import sha256
from tandem.store.job import Job
from tandem.training.checkpoint import Checkpoints, State

STATE = "state"


class Segment:
    """The part of a training that a job does: all of it, or up to the end of part `until[0]` of `until[1]`."""

    def __init__(self, job: Job) -> None:
        self.job, self.until, self.after = job, job.params.get("until"), job.inputs.get("after")

    def last(self, steps: int) -> int:
        """The step this job ends with: parts are of equal length, but for rounding up.

        Args:
            steps: of the whole training.
        Raises:
            UserError: more parts than steps.
        """
        part, parts = self.until or (1, 1)
        if steps < parts:
            raise UserError(f"train {self.job.key}: train.checkpoints is {parts}, but there are only {steps} steps")
        return -(-steps * int(part) // int(parts))

    def load(self, own: Checkpoints, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Continue from this job's newest checkpoint, else from what the job before left, else from the beginning."""
        state = own.load(models, optimizer)
        if state.step or self.after is None:
            return state
        return Checkpoints(left(self.after)).load(models, optimizer)

    def leave(self, state: State, models: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Leave the state for the next job; nothing to do for a training in one piece."""
        if self.until is not None:
            shutil.rmtree(self.job.out / STATE, ignore_errors=True)
            Checkpoints(self.job.out / STATE).save(state, models, optimizer)


def files(folder: Path) -> dict[str, str]:
    """sha256 of every file of a state by its place in the folder; Snakemake adds one of its own, which is left out."""
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.glob("step-*/*"))}


def left(checkpoint: Artifact) -> Path:
    """The folder of the state that a finished checkpoint left; a `UserError` unless it is what its manifest says."""
    folder = checkpoint.folder / STATE
    if files(folder) != checkpoint.manifest.facts[STATE]:
        found = "is not what the manifest says" if folder.is_dir() else "is gone"
        raise UserError(f"{folder}: {found}; delete {checkpoint.folder / MANIFEST} and let Snakemake make it again")
    return folder
