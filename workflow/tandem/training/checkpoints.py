"""Save a training's state, resume from it, and stop early.

Data order, dropout and learning rate follow only from the step, so the state is the step, the weights, the optimizer's
moments, the best weights so far and the log, in safetensors and JSON. A resumed training ends with the same bits as one
that was never interrupted.
"""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.cluster import scheduler
from tandem.cluster.progress import format_duration, say
from tandem.errors import UserError
from tandem.store.files import replacing, sha256, write_text
from tandem.store.job import load
from tandem.training.distributed import World

LogRow = tuple[int, str, float]
STEP = "step-"  # prefix of a checkpoint's folder; the number of its step follows
BEST = "best-"  # prefix of a file of the best weights, in the folder of the checkpoints
_STATE = "state.json"
_WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
# scancel, preemption, shutdown; Ctrl-C; a closed terminal
_CANCELS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SIGNALS = (*_CANCELS, signal.SIGUSR1)  # SIGUSR1 is what `sbatch --signal` sends


@dataclass
class State:
    """Hold a training's progress: the number of steps done, and its log.

    Results of validations are rows of the log, named `dev <measure> (<part>)`.
    """

    step: int = 0
    log: list[LogRow] = field(default_factory=list)


def list_learning(models: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters by name, each shared one once; frozen parameters are left out."""
    return {
        name: parameter for name, parameter in models.named_parameters() if parameter.requires_grad
    }


def list_saved_tensors(models: nn.Module) -> dict[str, Tensor]:
    """Return what a checkpoint saves, by name: the parameters that learn, and the persistent buffers."""
    buffers = dict(models.named_buffers())
    persistent = {name: buffers[name] for name in models.state_dict() if name in buffers}
    return {**list_learning(models), **persistent}


def move_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors in the form that safetensors can write: contiguous, in the processor's memory, without a graph."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def load_weights(models: nn.Module, path: Path) -> None:
    """Load a file's tensors into those of `list_saved_tensors`; a buffer that the file lacks keeps its value."""
    tensors = load_file(path)
    learning = list_learning(models)
    for name, tensor in list_saved_tensors(models).items():
        if name in learning or name in tensors:
            tensor.copy_(tensors[name])


def _read_step(path: Path) -> int:
    """Return the step in the name of a checkpoint, or of a file of the best weights."""
    return int(path.name.partition("-")[2].partition(".")[0])


class Checkpoints:
    """Save and load checkpoints in a folder. Only the newest one counts: once it is in place, older ones are removed.

    Args:
        origin: what `compute_origin` returns for the job that trains; a checkpoint of another origin is not resumed.
    """

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder = folder
        self.origin = origin

    def save(self, state: State, models: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write the state under a temporary name, then rename it; optimizer tensors are named `parameter|kind`."""
        parameters = list_learning(models)
        final = self.folder / f"{STEP}{state.step:08d}"
        moments, numbers = load("extras.optimizer_state:split_state")(optimizer, parameters)
        with replacing(final) as partial:
            partial.mkdir(parents=True, exist_ok=True)
            save_file(move_to_cpu(list_saved_tensors(models)), partial / _WEIGHTS)
            save_file(move_to_cpu(moments), partial / OPTIMIZER)
            files = [partial / _WEIGHTS, partial / OPTIMIZER, *self.find_best()[-1:]]
            digests = {path.name: sha256(path) for path in files}
            values = {"origin": self.origin, "files": digests, "step": state.step, "log": state.log}
            values["optimizer"] = numbers
            # without indentation, which would take seconds for a long log
            write_text(partial / _STATE, json.dumps(values))
            shutil.rmtree(final, ignore_errors=True)
        for old in self.find_all()[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def load(self, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Load the newest checkpoint and return its state; without a usable checkpoint, return a new state.

        A line reports a checkpoint that is not used because it is damaged or belongs to other inputs.
        """
        for partial in self.folder.glob(f".{STEP}*"):  # left by a process that was killed
            shutil.rmtree(partial, ignore_errors=True)
        checkpoints = self.find_all()
        last_step = _read_step(checkpoints[-1]) if checkpoints else 0
        for best in self.find_best():
            # Its step will be repeated, perhaps with other last bits; until then these weights must not be chosen.
            if _read_step(best) > last_step:
                best.unlink(missing_ok=True)
        if not checkpoints:
            return State()
        newest = checkpoints[-1]
        if problem := self._find_problem(newest):
            say(f"{newest}: {problem}; the training begins anew")
            self.remove()  # else it could stay the newest one
            return State()
        return read_state(newest, models, optimizer)

    def _find_problem(self, checkpoint: Path) -> str | None:
        """Return why a checkpoint cannot be resumed, else None."""
        try:
            values = json.loads((checkpoint / _STATE).read_text())
            for name, digest in values["files"].items():
                folder = self.folder if name.startswith(BEST) else checkpoint
                if sha256(folder / name) != digest:
                    return f"its {name} is damaged"
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return "is damaged"
        return None if values["origin"] == self.origin else "is of other inputs"

    def remove(self) -> None:
        """Delete everything: the finished model needs none of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def find_all(self) -> list[Path]:
        """Return the folders of checkpoints, the newest last."""
        return sorted(path for path in self.folder.glob(f"{STEP}*") if path.is_dir())

    def find_best(self) -> list[Path]:
        """Return the files of weights that were the best when they were validated, the newest last."""
        return sorted(self.folder.glob(f"{BEST}*"))


def read_state(checkpoint: Path, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load a checkpoint's weights and moments, and return the state of the training."""
    parameters = list_learning(models)
    values = json.loads((checkpoint / _STATE).read_text())
    load_weights(models, checkpoint / _WEIGHTS)
    moments = load_file(checkpoint / OPTIMIZER)
    restore = load("extras.optimizer_state:restore_state")
    restore(optimizer, parameters, moments, values.get("optimizer"))
    return State(values["step"], [(step, name, value) for step, name, value in values["log"]])


class Stopped(UserError):
    """Raised when a training has saved its state and ends early; the next try resumes from there.

    After one of `_CANCELS` the exit status is that of a process that was ended by this signal.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        if number in _CANCELS:
            self.status = scheduler.SIGNALLED + number


class Stop:
    """Decide whether a training has to end between two steps: after a signal, or shortly before its slurm job ends.

    It handles signals within its `with` block, and only in the main thread. If SIGHUP is already ignored, as under
    `nohup`, it stays ignored.

    Args:
        seconds: how long before the end of the slurm job the training ends.
        world: the processes that train together; all of them end after the same step.
    """

    def __init__(self, seconds: float, world: World) -> None:
        self.world = world
        self.signal = 0
        left = scheduler.read_seconds_left(os.environ) if world.first else None
        self.end: float | None = None
        self.last: float | None = None
        if left is not None:
            self.end = time.monotonic() + left
            self.last = self.end - seconds

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        handled = set(SIGNALS) if main else set()
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            handled.discard(signal.SIGHUP)
        self.before = {number: signal.signal(number, self.on_signal) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Request that the training ends after this step.

        A second Ctrl-C ends the process at once. Other signals do not, because schedulers send them twice.
        """
        self.signal = number
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    def is_requested(self) -> bool:
        """Return whether any of the processes has to end; all of them call this after each step."""
        is_late = self.last is not None and time.monotonic() >= self.last
        own = float(self.signal != 0 or is_late)
        return self.world.sum_values({"stop": own})["stop"] > 0

    def stop(self, label: str) -> None:
        """Put the slurm job back into the queue, wait until the first process has saved the state, raise `Stopped`.

        After one of `_CANCELS` the job is not put back: somebody has cancelled it, or slurm requeues it by itself.
        """
        requeued = (
            self.world.first and self.signal not in _CANCELS and scheduler.requeue(os.environ)
        )
        self.world.sum_values({"saved": 1.0})  # nobody ends before the first process has saved
        why = f"by {signal.Signals(self.signal).name}" if self.signal else "by another process"
        if self.end is not None and not self.signal:
            left = format_duration(max(0.0, self.end - time.monotonic()))
            why = f"{left} before the end of its slurm job"
        then = "the job is back in the queue and goes on" if requeued else "the next try goes on"
        raise Stopped(f"{label}: stopped {why}; {then} from there", self.signal)
