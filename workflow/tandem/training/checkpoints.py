"""Interrupt and resume: a training's state on disk, trainings in several jobs, and stopping early.

Data order, dropout and learning rate follow from the step alone, so the state is the step, the weights, the optimizer's
moments, the best weights so far and the log, in safetensors and JSON. A resumed training has the same bits.
"""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.cluster import slurm
from tandem.cluster.progress import duration
from tandem.errors import UserError
from tandem.store.artifact import MANIFEST, Artifact
from tandem.store.files import sha256, write_json
from tandem.store.job import Job
from tandem.training.distributed import World

LogRow = tuple[int, str, float]
STATE = "state"
CANCELS = (signal.SIGTERM, signal.SIGINT)  # scancel, preemption, shutdown; Ctrl-C
SIGNALS = (*CANCELS, signal.SIGUSR1)  # and what `sbatch --signal` sends


@dataclass
class State:
    """Where the training stands; validations are rows of the log, `dev <measure> (<part>)`."""

    step: int = 0
    log: list[LogRow] = field(default_factory=list)


def weights(models: nn.Module) -> dict[str, Tensor]:
    """The parameters that learn, by name, shared ones once, on the CPU; what is frozen follows from the start."""
    return {name: p.detach().cpu().contiguous() for name, p in models.named_parameters() if p.requires_grad}


def load_weights(models: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back the result of `weights`."""
    with torch.no_grad():
        for name, parameter in models.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer, models: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as `<parameter>|<what>` → tensor."""
    named = _optimized(optimizer, models).items()
    return {f"{name}|{what}": t for name, p in named for what, t in optimizer.state[p].items()}


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, models: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back the result of `optimizer_tensors`."""
    named = _optimized(optimizer, models)
    for path, tensor in tensors.items():
        name, what = path.split("|")
        parameter = named[name]
        optimizer.state[parameter][what] = tensor.to(parameter.device)


def _optimized(optimizer: torch.optim.Optimizer, models: nn.Module) -> dict[str, nn.Parameter]:
    learning = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in models.named_parameters() if id(p) in learning}


class Checkpoints:
    """Checkpoints in a folder, the newest complete one counts; older ones are removed after a newer is in place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, state: State, models: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the state under a temporary name, then rename it."""
        partial = self.folder / f".partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(weights(models), partial / "weights.safetensors")
        moments = {name: t.detach().cpu().contiguous() for name, t in optimizer_tensors(optimizer, models).items()}
        save_file(moments, partial / "optimizer.safetensors")
        write_json(partial / "state.json", {"step": state.step, "log": state.log})
        final = self.folder / f"step-{state.step:08d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        for old in self._complete()[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def save_best(self, models: nn.Module, step: int) -> None:
        """Write the weights of the best validation so far, under their step; remove those that no resumption needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".best-{os.getpid()}"
        save_file(weights(models), partial)
        os.replace(partial, self.folder / f"best-{step:08d}.safetensors")
        newest = f"best-{self._complete()[-1].name[5:]}.safetensors" if self.exist() else ""
        for old in sorted(path for path in self.folder.glob("best-*") if path.name <= newest)[:-1]:
            old.unlink()

    def load(self, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Continue from the newest checkpoint; without one, a fresh state."""
        complete = self._complete()
        if not complete:
            return State()
        values = json.loads((complete[-1] / "state.json").read_text())
        load_weights(models, load_file(complete[-1] / "weights.safetensors"))
        load_optimizer_tensors(optimizer, models, load_file(complete[-1] / "optimizer.safetensors"))
        return State(values["step"], [(step, name, value) for step, name, value in values["log"]])

    def load_best(self, models: nn.Module, step: int) -> None:
        """Put the weights of the best validation into the models."""
        load_weights(models, load_file(self.folder / f"best-{step:08d}.safetensors"))

    def exist(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return bool(self._complete())

    def remove(self) -> None:
        """Delete everything: the finished model needs none of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if (path / "state.json").is_file())


class Segment:
    """The part of a training that a job does: all of it, or up to the end of part `until[0]` of `until[1]`.

    The state lies beside the artifact in `state/`, not in it: Snakemake removes it when the next job is done, and makes
    it again if that job has to run again.
    """

    def __init__(self, job: Job[Any], until: tuple[int, int] | None) -> None:
        self.job, self.until, self.after = job, until, job.inputs.get("after")

    def last(self, steps: int) -> int:
        """The step this job ends with: parts are of equal length, up to rounding.

        Raises:
            UserError: more parts than steps.
        """
        part, parts = self.until or (1, 1)
        if steps < parts:
            raise UserError(f"train {self.job.key}: train.checkpoints is {parts}, but there are only {steps} steps")
        return -(-steps * part // parts)

    def load(self, own: Checkpoints, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Continue from this job's newest checkpoint, else from the state of the job before, else from the start."""
        state = own.load(models, optimizer)
        if state.step or self.after is None:
            return state
        return Checkpoints(state_folder(self.after)).load(models, optimizer)

    def leave(self, state: State, models: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Leave the state for the next job; nothing to do for a training in one piece."""
        if self.until is not None:
            shutil.rmtree(self.job.out / STATE, ignore_errors=True)
            Checkpoints(self.job.out / STATE).save(state, models, optimizer)


def state_files(folder: Path) -> dict[str, str]:
    """sha256 of every file of a state by its place in the folder; Snakemake adds one of its own, which is left out."""
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.glob("step-*/*"))}


def state_folder(checkpoint: Artifact) -> Path:
    """The folder of a finished checkpoint's state; a `UserError` unless it is what the manifest says."""
    folder = checkpoint.folder / STATE
    if state_files(folder) != checkpoint.manifest.facts[STATE]:
        problem = "is not what the manifest says" if folder.is_dir() else "is gone"
        raise UserError(f"{folder}: {problem}; delete {checkpoint.folder / MANIFEST} and let Snakemake make it again")
    return folder


class Stopped(UserError):
    """The training has saved its state and ended early: the next try continues from there."""


class Stop:
    """Whether a training is to end between two steps: on a signal, or before its slurm job ends.

    Args:
        seconds: how long before the end of its slurm job.
        world: the processes that train together: all of them end after the same step.
    """

    def __init__(self, seconds: float, world: World) -> None:
        self.world, self.signal = world, 0
        self.end = slurm.end(os.environ) if world.first else None
        self.last = self.end - seconds if self.end is not None else None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler; a second one of the same kind ends the process at once."""
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def requested(self) -> bool:
        """Whether any of the processes is to end; all of them call this after each step."""
        own = self.signal or (self.last is not None and time.time() >= self.last)
        return self.world.total({"stop": float(bool(own))})["stop"] > 0

    def stop(self, label: str) -> None:
        """End after the first process has saved the state; its slurm job returns to the queue.

        After SIGTERM or Ctrl-C it does not: somebody has cancelled the job, or slurm itself takes it back.

        Raises:
            Stopped: always.
        """
        again = self.world.first and self.signal not in CANCELS and slurm.requeue(os.environ)
        self.world.total({"saved": 1.0})  # nobody ends before the first process has saved
        why = f"by {signal.Signals(self.signal).name}" if self.signal else "by another process"
        if self.end is not None and not self.signal:
            why = f"{duration(max(0.0, self.end - time.time()))} before the end of its slurm job"
        then = "the job is back in the queue and goes on" if again else "the next try goes on"
        raise Stopped(f"{label}: stopped {why}; {then} from there")


@contextmanager
def stopping(seconds: float, world: World) -> Iterator[Stop]:
    """A `Stop` that handles signals meanwhile; in a thread other than the main one it handles none."""
    stop = Stop(seconds, world)
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, stop.on_signal) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
