"""Training's state on disk: enough to go on with the same bits after a kill, in safetensors and JSON.

Data order, dropout and learning rate follow from the step alone, so the state is the step, the weights, the optimizer's
moments, the best weights so far and the log.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tandem.store.files import write_json
from tandem.training.optimizer import load_state_tensors, state_tensors

LogRow = tuple[int, str, float]


@dataclass
class State:
    """Where the training stands.

    Attributes:
        step: steps done.
        best: best validation value so far, and the step it was reached at.
        log: rows of (step, name, value).
    """

    step: int = 0
    best: tuple[float, int] | None = None
    log: list[LogRow] = field(default_factory=list)


def weights(models: nn.Module) -> dict[str, Tensor]:
    """The parameters that learn, by name, shared ones once, on the CPU; what is frozen follows from the start."""
    return {name: p.detach().cpu().contiguous() for name, p in models.named_parameters() if p.requires_grad}


def load_weights(models: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `weights` gave."""
    with torch.no_grad():
        for name, parameter in models.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(tensors[name])


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
        moments = {name: t.detach().cpu().contiguous() for name, t in state_tensors(optimizer, models).items()}
        save_file(moments, partial / "optimizer.safetensors")
        write_json(partial / "state.json", {"step": state.step, "best": state.best, "log": state.log})
        final = self.folder / f"step-{state.step:08d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        for old in self._complete()[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def save_best(self, models: nn.Module, step: int) -> None:
        """Keep the weights of the best validation so far, under their step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".best-{os.getpid()}"
        save_file(weights(models), partial)
        os.replace(partial, self.folder / f"best-{step:08d}.safetensors")

    def load(self, models: nn.Module, optimizer: torch.optim.Optimizer) -> State:
        """Continue from the newest checkpoint; a fresh state where there is none."""
        complete = self._complete()
        if not complete:
            return State()
        told = json.loads((complete[-1] / "state.json").read_text())
        load_weights(models, load_file(complete[-1] / "weights.safetensors"))
        load_state_tensors(optimizer, models, load_file(complete[-1] / "optimizer.safetensors"))
        best = tuple(told["best"]) if told["best"] else None
        return State(told["step"], best, [(step, name, value) for step, name, value in told["log"]])

    def load_best(self, models: nn.Module, step: int) -> None:
        """Put the weights of the best validation into the models."""
        load_weights(models, load_file(self.folder / f"best-{step:08d}.safetensors"))

    def there(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return bool(self._complete())

    def remove(self) -> None:
        """Delete everything: the finished model needs none of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("step-*") if (path / "state.json").is_file())
