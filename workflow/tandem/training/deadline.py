"""A training gives way between two steps, with its state saved: to a signal, or before its slurm job ends."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tandem.cluster import slurm
from tandem.cluster.progress import duration
from tandem.errors import UserError
from tandem.training.distributed import World

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # scancel, preemption, shutdown; and what `sbatch --signal` is asked for


class Stopped(UserError):
    """The training has saved its state and ended early: the next try goes on from there."""


class Stop:
    """Whether a training is to end after the step that it has just done.

    Args:
        seconds: how long before the end of its slurm job.
        world: the processes that train together: all of them end after the same step.
    """

    def __init__(self, seconds: float, world: World) -> None:
        self.world, self.signal = world, 0
        self.end = slurm.end(os.environ) if world.first else None
        self.last = self.end - seconds if self.end is not None else None

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler; a second one of the same kind ends the process at once."""
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def asked(self) -> bool:
        """Whether any of the processes is to end; all of them ask after each step."""
        own = self.signal or (self.last is not None and time.time() >= self.last)
        return self.world.total({"stop": float(bool(own))})["stop"] > 0

    def give_way(self, label: str) -> None:
        """End after the state was saved by the first process; its slurm job goes back into the queue.

        What was ended by SIGTERM stays ended: somebody has cancelled it, or slurm itself takes it back.

        Raises:
            Stopped: always.
        """
        again = self.world.first and self.signal != signal.SIGTERM and slurm.requeue(os.environ)
        self.world.total({"saved": 1.0})  # nobody ends before the first process has saved
        why = f"by {signal.Signals(self.signal).name}" if self.signal else "by another process"
        if self.end is not None and not self.signal:
            why = f"{duration(max(0.0, self.end - time.time()))} before the end of its slurm job"
        then = "the job is back in the queue and goes on" if again else "the next try goes on"
        raise Stopped(f"{label}: stopped {why}; {then} from there")


@contextmanager
def stopping(seconds: float, world: World) -> Iterator[Stop]:
    """A `Stop` whose signals are handled meanwhile; in a thread other than the main one no signal is."""
    stop = Stop(seconds, world)
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.signal(one, stop.signalled) for one in SIGNALS}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
