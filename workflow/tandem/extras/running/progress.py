"""Snakemake as a process of its own, and how far it is: the time left by estimates and pace, and a line that shows it.

Its output goes to a file, its events to `tandem run`; Ctrl-C stops its jobs.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import fmean
from threading import Thread

import psutil

from tandem import ROOT
from tandem.cluster.progress import duration, say
from tandem.errors import UserError
from tandem.extras.estimate import resources
from tandem.extras.estimate.estimate import new_setting, stage_cost
from tandem.extras.operations.configurations import stages_of_all
from tandem.extras.plan import FullPlan
from tandem.extras.running.events import Event, Job, Run, kind_of_rule
from tandem.plan.graph import Stage, Stages, upstream_first
from tandem.store.lineage import stage_name

SHORT = 3.0  # seconds of a job without an estimate: its process starts, and a moment
PRIOR = 30.0  # seconds of estimated work after which the pace so far counts as much as the estimate
ALMOST = 0.95  # the most that a job without a progress file is taken to have done
COUNTED = ("dataset", "tokens")  # kinds whose artifacts say how large the collection is
DOES = {
    "dataset": "reading", "encoder": "loading", "tokens": "tokenizing", "lucene": "indexing", "bm25": "searching",
    "bm25s": "indexing", "term_weights": "encoding", "retrieve_sparse": "searching", "impacts": "indexing",
    "search_impacts": "searching", "seismic": "indexing", "search_seismic": "searching",
    "candidates": "drawing negatives for", "teacher": "scoring training lists of", "model": "training",
    "checkpoint": "training", "embeddings": "encoding", "retrieve": "searching", "index": "indexing",
    "token_vectors": "encoding", "maxsim": "searching", "term_tradeoffs": "measuring",
    "topics": "clustering queries of",
    "ann": "searching", "rerank": "re-ranking", "score": "scoring", "pretrain": "pre-training",
    "vocabulary": "learning a vocabulary for", "table": "writing", "report": "writing the",
}  # fmt: skip
MODELS = {"dual": "dual encoder", "cross": "cross-encoder", "joint": "retriever and re-ranker"}
TICK = 1.0  # seconds between two looks at the progress of the running jobs


def requested_stages(plan: FullPlan, targets: Sequence[str]) -> list[Stage]:
    """The stages that targets may need: of tables those behind them, of other targets all that are planned."""
    if set(targets) <= {"all", "report"}:
        return stages_of_all(plan)
    tables = plan.tables.papers | {name: [table] for name, table in plan.tables.targets.items()}
    if not all(target in tables for target in targets):
        return list(plan.stages.values())
    named = (table for target in targets for table in tables[target])
    return upstream_first(stage for table in named for _, stage in plan.tables.get(table, ()))


class Forecast:
    """The share of a run that is done and the seconds left, by estimates of the stages that are not made yet."""

    def __init__(self, plan: FullPlan, stages: Sequence[Stage]) -> None:
        self.settings, self.began = plan.settings, time.monotonic()
        self.machine = resources.Hardware.load(ROOT / "config/hardware", self.settings.execution.hardware)
        self.stages = [stage for stage in stages if not resources.finished(stage.folder)]
        self.seconds: dict[tuple[str, str], float] = {}  # (kind, key) → of each stage
        self.known = False  # whether all stages could be estimated
        self._counted = -1

    def __call__(self, run: Run) -> tuple[float, float] | None:
        """(share of the work that is done, seconds for the rest); None while the collection's size is not known."""
        counted = sum(job.stage[0] in COUNTED for job in run.finished.values())
        if counted != self._counted:
            self._counted = counted
            self._estimate()
        if not self.known or not run.total:
            return None
        now = time.monotonic()
        finished = sum(map(self._expected, run.finished.values()))
        running = [(self._expected(job), job) for job in run.running.values()]
        done = finished + sum(seconds * self._share(job, seconds, now) for seconds, job in running)
        begun = Counter(job.rule for jobs in (run.finished, run.running) for job in jobs.values())
        waiting = sum(count * self._mean(kind_of_rule(rule)) for rule, count in (run.counts - begun).items())
        whole = finished + sum(seconds for seconds, _ in running) + waiting
        pace = (now - self.began + PRIOR) / (done + PRIOR)
        return done / whole, (whole - done) * pace

    def _estimate(self) -> None:
        """Estimate all stages again: at the start, and when a collection has been counted."""
        resources.finished.cache_clear()
        setting, self.known = new_setting(self.settings, self.machine), True
        for stage in self.stages:
            try:
                cost = stage_cost(stage, setting, self.machine)
                self.seconds[stage.kind, stage.key] = cost.wall if cost else SHORT
            except UserError:
                self.known = False

    def _mean(self, kind: str) -> float:
        values = [seconds for (of, _), seconds in self.seconds.items() if of == kind]
        return fmean(values) if values else SHORT

    def _expected(self, job: Job) -> float:
        return self.seconds.get(job.stage, self._mean(kind_of_rule(job.rule)))

    def _share(self, job: Job, seconds: float, now: float) -> float:
        share = job.share()
        return min((now - job.began) / seconds, ALMOST) if share is None else share


def describe(job: Job, stages: Stages) -> str:
    """What a job does, in words: `training cross-encoder ce_deneg`."""
    kind, key = job.stage
    if not kind:
        words = (DOES.get(job.rule, job.rule.replace("_", " ")), *job.wildcards.values())
        return " ".join([*words, *(["report"] if job.rule == "report" else [])])
    objective = stages[kind, key].values.get("objective") if (kind, key) in stages else None
    return " ".join(filter(None, (DOES.get(kind, kind.replace("_", " ")), MODELS.get(str(objective)), stage_name(key))))


def about(seconds: float) -> str:
    """A time that is not known exactly: `1 min`, `4 min`, `1 h 56 min`."""
    return f"{max(1, round(seconds / 60))} min" if seconds < 3600 else duration(seconds)


class Line:
    """Shows a run on standard error."""

    def __init__(self, stages: Stages, forecast: Forecast) -> None:
        self.stages, self.forecast = stages, forecast
        self.terminal = sys.stderr.isatty()

    def text(self, run: Run, job: Job) -> str:
        """`training cross-encoder ce_deneg · stage 14 of 37 · 41 % · about 4 min left`."""
        others = len(run.running) - 1
        parts = [describe(job, self.stages) + (f" and {others} more" if others > 0 else "")]
        parts.append(f"stage {min(run.done + 1, run.total)} of {run.total}")
        if forecast := self.forecast(run):
            share, left = forecast
            parts += [f"{share:.0%}".replace("%", " %"), f"about {about(left)} left"]
        return " · ".join(parts)

    def refresh(self, run: Run) -> None:
        """Show the job that has run longest, on a terminal."""
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            text = self.text(run, next(iter(run.running.values()))) if run.running else "Snakemake plans its jobs"
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)

    def begin(self, run: Run, job: Job) -> None:
        """Show a job that begins."""
        if self.terminal:
            self.refresh(run)
        elif job.log:  # others take no time
            say(self.text(run, job))

    def clear(self) -> None:
        """Remove the line from the terminal."""
        print("\r\x1b[K" if self.terminal else "", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line of its own, above the one that is refreshed."""
        self.clear()
        say(text)


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
