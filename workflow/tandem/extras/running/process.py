"""Snakemake as a process of its own: its output goes to a file, its events to `tandem run`; Ctrl-C stops its jobs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import psutil

from tandem import ROOT
from tandem.errors import UserError
from tandem.extras.running.events import Event, Run
from tandem.extras.running.progress import Line

TICK = 1.0  # seconds between two looks at the progress of the running jobs


class Snakemake:
    """A run of Snakemake on this checkout's Snakefile.

    It has a session of its own, so that Ctrl-C reaches `tandem run` alone: were the pipes that write a stage's log
    ended with it, the stage could not say that it has saved its state.

    Args:
        words: of its command line: targets first.
        log: the file that its output goes to, and that of its jobs.
    Raises:
        UserError: the log cannot be written.
    """

    def __init__(self, words: list[str], log: Path) -> None:
        self.stopped = False
        read, write = os.pipe()
        events = ["-s", str(ROOT / "Snakefile"), "--logger", "tandem", f"--logger-tandem-fd={write}"]
        path = [str(ROOT / "workflow"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        try:
            log.parent.mkdir(exist_ok=True)
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "snakemake", *events, *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                    pass_fds=[write], start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise UserError(f"{log}: cannot be written: {error.strerror}") from None
        os.close(write)
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        Thread(target=self._read, args=(read,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        try:
            with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._events.put(Event.model_validate_json(line))
        finally:
            self._events.put(None)

    def follow(self, line: Line) -> tuple[Run, int]:
        """Show what happens until Snakemake ends; what has happened, and the exit status."""
        run = Run()
        try:
            while self._next(run, line):
                pass
        except Exception:  # a fault of ours must not leave Snakemake running unseen
            self.stop(line)
            raise
        status = self.process.wait()
        line.clear()
        return run, status if status >= 0 else 128 - status

    def _next(self, run: Run, line: Line) -> bool:
        """Take the next event, or look at the progress where there is none for a moment; False at the end."""
        try:
            event = self._events.get(timeout=TICK)
            if event is None:
                return False
            run.take(event)
            if event.event == "job_info":
                line.begin(run, run.running[event.jobid])
        except Empty:
            line.refresh(run)
        except KeyboardInterrupt:
            self.stop(line)
        return True

    def stop(self, line: Line) -> None:
        """Have Snakemake begin nothing more, and its jobs end: trainings save their state, but not the second time."""
        self.stopped = True
        line.say("stopping: trainings save their state; Ctrl-C again ends them at once")
        self.process.send_signal(signal.SIGINT)
        try:
            for stage in stage_processes(psutil.Process(self.process.pid)):
                stage.send_signal(signal.SIGINT)
        except psutil.Error:  # it has ended meanwhile
            return


def stage_processes(process: psutil.Process) -> Iterator[psutil.Process]:
    """The processes of Tandem's commands below a process, without theirs: ranks are stopped by their launcher."""
    for child in process.children():
        words = child.cmdline()
        if ("-m", "tandem") in pairwise(words):
            yield child
        else:
            yield from stage_processes(child)
