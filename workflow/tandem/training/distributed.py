"""Train one model in several processes: each computes the gradient of its share of a batch's queries.

Each process divides its loss by the number of queries of the whole batch. So gradients are summed, never averaged, and
the result is exact even if shares are uneven or empty.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tandem.models.device import device
from tandem.training.lists import Batch

_LAUNCHED = {"RANK", "WORLD_SIZE", "MASTER_ADDR"}  # variables that torchrun sets
_PATIENCE = timedelta(hours=2)  # how long the others wait while the first process writes


class _Gather(torch.autograd.Function):
    """Concatenate the rows of all processes; the gradient of a process' rows is summed over all processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int], rank: int) -> Tensor:
        """Return all rows, shape (sum of counts, …), from this process' rows, shape (counts[rank], …)."""
        ctx.start = sum(counts[:rank])
        ctx.rows = counts[rank]
        padded = own.new_zeros((max(counts), *own.shape[1:]))
        padded[: counts[rank]] = own
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([rows[:count] for rows, count in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of this process' rows, summed over the processes."""
        whole = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole)
        return whole[ctx.start : ctx.start + ctx.rows], None, None


@dataclass(frozen=True)
class World:
    """Exchange values between the processes that train together; this process has the number `rank`."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Self:
        """Return the processes that torchrun started; without torchrun, only this one."""
        if not os.environ.keys() >= _LAUNCHED:
            return cls()
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    @property
    def first(self) -> bool:
        """Return whether this process writes and reports."""
        return self.rank == 0

    @contextmanager
    def joined(self) -> Iterator[Self]:
        """Connect to the other processes: by nccl with one CUDA device each (`LOCAL_RANK`), else by gloo.

        After an error the group is not destroyed: nccl would first wait, up to `_PATIENCE`, for operations that the
        other processes never join.
        """
        if self.size == 1:
            yield self
            return
        backend = "nccl" if device().type == "cuda" else "gloo"
        if backend == "nccl":
            torch.cuda.set_device(device())
        dist.init_process_group(backend, rank=self.rank, world_size=self.size, timeout=_PATIENCE)
        yield self
        dist.destroy_process_group()

    def slice(self, count: int) -> slice:
        """Return this process' part of a sequence of `count` items; the first processes may have one more."""
        each, remainder = divmod(count, self.size)
        start = self.rank * each + min(self.rank, remainder)
        own = each + 1 if self.rank < remainder else each
        return slice(start, start + own)

    def share(self, batch: Batch) -> Batch:
        """Return this process' queries of a batch, with their lists; the share may be empty."""
        return batch.select(self.slice(len(batch.queries)))

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes in order, with gradient.

        Args:
            rows: this process' rows, shape (rows, …); their number may differ between processes, and be 0.
        Returns:
            Shape (all processes' rows, …). The gradient of a process' rows is the sum over all processes.
        """
        if self.size == 1:
            return rows
        if torch.is_grad_enabled() and not rows.requires_grad:
            # Every process must take part in the exchange of the backward pass.
            rows = rows.detach().requires_grad_()
        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        dist.all_reduce(counts)
        gathered: Tensor = _Gather.apply(rows, counts.tolist(), self.rank)  # type: ignore[no-untyped-call]
        return gathered

    def sum_gradients(self, models: nn.Module) -> None:
        """Replace every parameter's gradient by its sum over all processes, in one exchange.

        A process without a gradient of a parameter adds zeros. If no process has one, the parameter's gradient stays
        None.
        """
        if self.size == 1:
            return
        learning = [p for p in models.parameters() if p.requires_grad]
        reached = torch.tensor(
            [float(p.grad is not None) for p in learning], device=learning[0].device
        )
        gradients = []
        for p in learning:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            gradients.append(gradient.reshape(-1))
        flat = torch.cat([reached.to(learning[0].dtype), *gradients])
        dist.all_reduce(flat)
        # number of processes with a gradient of each parameter
        counts = flat[: len(learning)].tolist()
        sums = flat[len(learning) :].split([p.numel() for p in learning])
        for p, gradient, count in zip(learning, sums, counts, strict=True):
            p.grad = gradient.view_as(p).to(p.dtype) if count else None

    def sum_values(self, values: dict[str, float]) -> dict[str, float]:
        """Return each value summed over the processes; all of them must pass the same names in the same order."""
        if self.size == 1:
            return values
        sums = torch.tensor(list(values.values()), dtype=torch.float64, device=device())
        dist.all_reduce(sums)
        return dict(zip(values, sums.tolist(), strict=True))


SINGLE_PROCESS = World()
