"""The progress of a Snakemake run: its jobs' reports, the time left by estimates and pace, and a line that shows it."""

import os
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ValidationError

from tandem import ROOT
from tandem.cluster.progress import format_duration, say
from tandem.cluster.threads import count_usable_cores
from tandem.errors import UserError
from tandem.extras.estimate import resources
from tandem.extras.estimate.estimate import estimate_stage, is_unknown, new_setting
from tandem.extras.plan import FullPlan
from tandem.extras.running.progress_files import ProgressRecord, get_progress_path
from tandem.extras.targets import list_stages_of_all
from tandem.plan.graph import Stage, Stages, upstream_first
from tandem.stages import declaration, holding, rule_names
from tandem.store.artifact import ARCHIVE_SUFFIX, MANIFEST
from tandem.store.lineage import stage_name

# seconds of a job without an estimate: its process starts and computes a moment
SECONDS_WITHOUT_ESTIMATE = 3.0
# The pace so far counts as much as the estimate once this share of the run is done, within these seconds. A run begins
# with short stages, each of which starts a process: their pace does not predict that of the later trainings.
_PRIOR_SHARE = 0.05
LEAST_PRIOR_SECONDS = 30.0
_MOST_PRIOR_SECONDS = 300.0
_ALMOST_DONE = 0.95  # the largest share assumed done of a job without a progress file
_SLOW_FACTOR = 5  # times its estimate, from which on a stage is reported as slow
_EARLY_SECONDS = 60.0  # seconds before a stage is reported: it may only pause
_VIEW_WORDS = {"table": "writing", "report": "writing the"}  # verbs of rules that build no stage
MODELS = {"dual": "dual encoder", "cross": "cross-encoder", "joint": "retriever and re-ranker"}


class Event(BaseModel):
    """A line of the logger plugin: the kind of event, and the fields that this kind has."""

    event: str
    dryrun: bool = False
    stats: dict[str, int] = {}  # rule → number of jobs, and `total`
    jobid: int = -1
    job_id: int = -1
    rule_name: str = ""
    wildcards: dict[str, str] = {}
    output: list[str] = []
    log: list[str] = []
    done: int = 0
    total: int = 0
    exception: str | None = None
    message: str = ""


@dataclass
class BegunJob:
    """A job that has begun: its rule and files, and when it began, by the monotonic clock."""

    rule: str
    wildcards: dict[str, str]
    output: list[str]
    log: list[str]
    began: float = field(default_factory=time.monotonic)

    @property
    def stage(self) -> tuple[str, str]:
        """Return (kind, key) of the stage that it builds, whole or a shard; empty texts for a table or the report."""
        return self.wildcards.get("kind", ""), self.wildcards.get("key", "")

    def record(self) -> ProgressRecord | None:
        """Return the job's progress record; None as long as the job waits or loads its libraries."""
        try:
            made = Path(self.output[0])
            # an archive is Snakemake's, for object storage; the stage itself works next to its log
            if made.suffix == ARCHIVE_SUFFIX:
                made = Path(self.log[0]).with_name(MANIFEST)
            text = get_progress_path(made).read_text(encoding="utf-8")
            return ProgressRecord.model_validate_json(text)
        except (OSError, ValidationError, IndexError):
            return None

    def share(self) -> float | None:
        """Return the share of the job's work that is done, from its progress file; None if that is not known."""
        record = self.record()
        return None if record is None else compute_share(record)


def compute_share(record: ProgressRecord) -> float | None:
    """Return the share of the work that is done; None if the record does not show it."""
    return (
        min(1.0, record.done / record.total) if record.total and record.done is not None else None
    )


@dataclass
class Pace:
    """One try of a job: when it was first seen, its record's time and share then, and the largest share since."""

    began: float
    updated: float
    share: float
    largest: float


class Run:
    """Follows a run of Snakemake by the events reported so far.

    Attributes:
        counts: rule → number of its jobs.
        running, finished, failed: jobs by Snakemake's number; a job that is retried has not failed.
        errors: Snakemake's own.
        executes: whether it builds anything; false in a dry run, and with flags like `--unlock`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.done = 0
        self.running: dict[int, BegunJob] = {}
        self.finished: dict[int, BegunJob] = {}
        self.failed: dict[int, BegunJob] = {}
        self.errors: list[Event] = []
        self.executes = False

    @property
    def total(self) -> int:
        """Return the number of jobs."""
        return self.counts.total()

    def take(self, event: Event) -> None:
        """Record an event."""
        match event.event:
            case "run_info":
                self.counts = Counter(
                    {rule: count for rule, count in event.stats.items() if rule != "total"}
                )
            case "workflow_started":
                self.executes = not event.dryrun
            case "job_info":
                self.failed.pop(event.jobid, None)
                self.running[event.jobid] = BegunJob(
                    event.rule_name, event.wildcards, event.output, event.log
                )
            case "job_finished" if event.job_id in self.running:
                self.finished[event.job_id] = self.running.pop(event.job_id)
            case "job_error" if event.jobid in self.running:
                self.failed[event.jobid] = self.running.pop(event.jobid)
            case "progress":
                self.done = event.done
            case "error":
                self.errors.append(event)


def list_requested_stages(plan: FullPlan, targets: Sequence[str]) -> list[Stage]:
    """Return the stages that targets may need: those behind tables, or all stages if a target is not a table."""
    if set(targets) <= {"all", "report"}:
        return list_stages_of_all(plan)
    tables = list_tables_of_targets(plan)
    if not all(target in tables for target in targets):
        return list(plan.stages.values())
    named = (table for target in targets for table in tables[target])
    return upstream_first(stage for table in named for _, stage in plan.tables.get(table, ()))


def list_tables_of_targets(plan: FullPlan) -> dict[str, list[str]]:
    """Return the tables of each target that names a paper or a table."""
    return plan.tables.papers | {name: [table] for name, table in plan.tables.targets.items()}


class Forecast:
    """Forecasts what share of a run is done and how many seconds are left, by estimates of the unfinished stages."""

    def __init__(self, plan: FullPlan, stages: Sequence[Stage]) -> None:
        self.settings, self.began = plan.settings, time.monotonic()
        self.machine = resources.Hardware.load_scaled(
            ROOT / "config/hardware", self.settings.execution.hardware
        )
        self.stages = [stage for stage in stages if not resources.read_finished(stage.folder)]
        self.seconds: dict[tuple[str, str], float] = {}  # (kind, key) of a stage → its estimate
        self.known = False  # whether all stages could be estimated
        self.unknown = {(stage.kind, stage.key) for stage in self.stages if is_unknown(stage)}
        self._counted = -1
        self._paces: dict[tuple[str, float], Pace] = {}  # by a try's output and start

    def __call__(self, run: Run) -> tuple[float, float] | None:
        """Return (share of the work that is done, seconds for the rest); None while some size or cost is unknown."""
        counted = sum(
            job.stage[0] in holding("collection", "tokens") for job in run.finished.values()
        )
        if counted != self._counted:
            self._counted = counted
            self._estimate()
        if (
            not self.known
            or not run.total
            or self.unknown - {job.stage for job in run.finished.values()}
        ):
            return None
        now = time.monotonic()
        finished = sum(self._expected(job) for job in run.finished.values())
        running = sum(self._expected(job) for job in run.running.values())
        done = finished
        for job in run.running.values():
            seconds = self._expected(job)
            done += seconds * self._share(job, seconds, now)

        begun = [*run.finished.values(), *run.running.values()]
        begun_stages = {job.stage for job in begun}
        to_come = run.counts - Counter(job.rule for job in begun)
        waiting = sum(count * self._mean(rule, begun_stages) for rule, count in to_come.items())

        whole = finished + running + waiting
        prior = min(max(_PRIOR_SHARE * whole, LEAST_PRIOR_SECONDS), _MOST_PRIOR_SECONDS)
        pace = (now - self.began + prior) / (done + prior)
        return done / whole, (whole - done) * pace

    def slowness(self, job: BegunJob, record: ProgressRecord) -> tuple[float, float] | None:
        """Return (seconds passed, seconds estimated for the same work) if a job runs at a fifth of its estimate.

        None otherwise. Both count from the first progress that was seen: a job may wait in a queue, loading a model is
        not a pace, and a resumed try starts with a share done. Without progress since then the whole estimate counts.
        """
        seconds, share = self.seconds.get(job.stage), compute_share(record)
        if seconds is None or share is None:
            return None
        now = time.monotonic()
        pace = self._paces.setdefault(
            (record.out, record.started), Pace(now, record.updated, share, share)
        )
        # The progress of a part, such as a validation, starts again at 0: the stage keeps the largest share.
        pace.largest = max(share, pace.largest)

        gain, passed = pace.largest - pace.share, now - pace.began
        expected = seconds * gain if gain else max(seconds, SECONDS_WITHOUT_ESTIMATE)
        # a killed try leaves its file, while the next try may be waiting
        is_alive = record.updated > pace.updated
        if is_alive and passed > max(_EARLY_SECONDS, _SLOW_FACTOR * expected):
            return passed, expected
        return None

    def _estimate(self) -> None:
        """Estimate all stages again: at the start, and after a collection has been counted."""
        resources.read_finished.cache_clear()
        setting, self.known = new_setting(self.settings, self.machine), True
        for stage in self.stages:
            try:
                cost = estimate_stage(stage, setting, self.machine)
                self.seconds[stage.kind, stage.key] = (
                    cost.wall if cost else SECONDS_WITHOUT_ESTIMATE
                )
            except UserError:
                self.known = False

    def _mean(self, rule: str, begun: Container[tuple[str, str]] = ()) -> float:
        """Return the mean seconds of the stages that a rule's jobs build or share; those to come, if there are any."""
        name = rule.removesuffix("_shard")
        kind = rule_names()[name].name if name in rule_names() else name
        seconds = {stage: seconds for stage, seconds in self.seconds.items() if stage[0] == kind}
        to_come = [seconds[stage] for stage in seconds if stage not in begun]
        return fmean(to_come or seconds.values() or [SECONDS_WITHOUT_ESTIMATE])

    def _expected(self, job: BegunJob) -> float:
        return self.seconds.get(job.stage, self._mean(job.rule))

    def _share(self, job: BegunJob, seconds: float, now: float) -> float:
        share = job.share()
        return min((now - job.began) / seconds, _ALMOST_DONE) if share is None else share


def describe_job(job: BegunJob, stages: Stages) -> str:
    """Describe a job: `training cross-encoder ce_deneg`."""
    kind, key = job.stage
    does = declaration(kind).does if kind else _VIEW_WORDS.get(job.rule, job.rule.replace("_", " "))
    if not kind:
        return " ".join(
            [does, *job.wildcards.values(), *(["report"] if job.rule == "report" else [])]
        )
    objective = stages[kind, key].values.get("objective") if (kind, key) in stages else None
    return " ".join(filter(None, (does, MODELS.get(str(objective)), stage_name(key))))


def explain_slowness(node: str) -> str:
    """Report whether other programs also compute on a stage's node, by the load average, if it is this node."""
    elsewhere = "the estimate may be of another machine"
    if node != platform.node():
        return f"it runs on {node}; {elsewhere}"
    threads, cores = os.getloadavg()[0], count_usable_cores()
    reason = "other programs compute here, too" if threads > cores + 1 else elsewhere
    return f"{reason} ({threads:.1f} threads at work, {cores} cores)"


def format_about(seconds: float) -> str:
    """Return an approximate time: `1 min`, `4 min`, `1 h 56 min`."""
    return f"{max(1, round(seconds / 60))} min" if seconds < 3600 else format_duration(seconds)


class ProgressLine:
    """Shows a run on standard error."""

    def __init__(self, stages: Stages, forecast: Forecast) -> None:
        self.stages, self.forecast = stages, forecast
        self.terminal = sys.stderr.isatty()
        self.slow = set[tuple[str, str]]()  # stages that were reported as slow

    def text(self, run: Run, job: BegunJob) -> str:
        """Return `training cross-encoder ce_deneg · stage 14 of 37 · 41 % · about 4 min left`."""
        others = len(run.running) - 1
        what = describe_job(job, self.stages) + (f" and {others} more" if others > 0 else "")
        parts = [what, f"stage {min(run.done + 1, run.total)} of {run.total}"]
        if forecast := self.forecast(run):
            share, left = forecast
            parts += [f"{share:.0%}".replace("%", " %"), f"about {format_about(left)} left"]
        return " · ".join(parts)

    def refresh(self, run: Run) -> None:
        """Show the job that has run longest, on a terminal."""
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            job = next(iter(run.running.values()), None) if run.executes else None
            text = self.text(run, job) if job else "Snakemake plans its jobs"
            say(f"\r\x1b[K{text[:width]}", end="")

    def name_slow_stages(self, run: Run) -> None:
        """Report once for each running stage that it runs at a fifth of its estimate, with the possible reason."""
        for job in run.running.values():
            record = None if job.stage in self.slow else job.record()
            if record and (slowness := self.forecast.slowness(job, record)):
                self.slow.add(job.stage)
                passed, expected = map(format_duration, slowness)
                what = f"{describe_job(job, self.stages)} is slow: {passed} for what was estimated at {expected}"
                self.say(f"{what}; {explain_slowness(record.node)}")

    def begin(self, run: Run, job: BegunJob) -> None:
        """Show a job that begins; in a dry run no job does."""
        if self.terminal:
            self.refresh(run)
        elif run.executes and job.log:  # other jobs take no time
            say(self.text(run, job))

    def clear(self) -> None:
        """Remove the line from the terminal."""
        say("\r\x1b[K" if self.terminal else "", end="")

    def say(self, text: str) -> None:
        """Print a line of its own, above the one that is refreshed."""
        self.clear()
        say(text)
