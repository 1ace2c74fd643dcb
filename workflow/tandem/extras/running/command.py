"""The command `run`: build what a configuration requests with Snakemake, and end with the answer, or why it failed."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import psutil

from tandem import ROOT
from tandem.cluster.progress import format_duration, say
from tandem.cluster.scheduler import SIGNALLED
from tandem.cluster.threads import count_usable_cores
from tandem.config.merging import read_yaml
from tandem.errors import UserError, nearest
from tandem.extras.import_path import for_stages, with_library
from tandem.extras.plan import FullPlan
from tandem.extras.report.table_answers import list_hurt, name_losses, name_scored_queries
from tandem.extras.running import run_progress
from tandem.extras.running.failures import explain_failure
from tandem.extras.running.run_above import RUN
from tandem.extras.running.warm_server import serve_warm
from tandem.extras.targets import (
    Configuration,
    choose_configuration,
    is_table_made,
    read_configurations,
    split_files,
)
from tandem.extras.view_owners import check_owner
from tandem.redaction import set_aside
from tandem.report.formats import make_table_grid
from tandem.report.grids import LEVEL, align_text, format_difference, format_number, format_p
from tandem.report.results import Table, read_table
from tandem.stages import declaration

LOGS = Path("logs")
# rules that only print
_PRINTED_TABLE = {"datasets": "tandem datasets", "estimate": "tandem estimate"}
ELSEWHERE = {
    **dict.fromkeys(("--config", "-C"), "write it before --"),
    "--configfile": "name the file before --",
    "--configfiles": "name the files before --",
    **dict.fromkeys(("--directory", "-d"), "change to the folder"),
    **dict.fromkeys(("--snakefile", "-s"), "run Snakemake itself"),
}
# Flags that set the number of cores, or name a profile that does; a one-letter flag may have the number attached.
_CORES = re.compile(r"(--cores|--jobs|--profile)(=|$)|-[cj]")
# A number of cores with which no job could run: Snakemake would wait forever.
_NO_CORES = re.compile(r"(--cores|--jobs|-[cj])[ =]?(0+|-\d+)")
_PROFILE = re.compile(r"(profile|config)(\.v\d+\+)?\.yaml")  # a profile's file in its folder
# Flags with which Snakemake runs no job; a one-letter flag may be combined with others.
_ONLY_LOOKS = re.compile(r"--dry-?run|--unlock|--(detailed-)?summary|-[npqr]*n[npqr]*")
# Ctrl-C; a batch system; a terminal that is closed
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Snakemake's words about a failed command: `exit status 143`; about its shell: `died with <Signals.SIGTERM: 15>`.
_STATUS = re.compile(r"exit status (\d+)|died with <Signals\.(\w+)")
TICK = 1.0  # seconds between two looks at the progress of the running jobs


@dataclass(frozen=True)
class RunRequest:
    """What a command line asks for: a configuration, targets, and flags for Snakemake."""

    configuration: Configuration
    targets: list[str]
    flags: list[str]

    @property
    def words(self) -> list[str]:
        """Return Snakemake's words: all cores, unless a flag or a profile sets the number."""
        is_said = any(_CORES.match(flag) for flag in self.flags)
        cores = []
        if not (
            is_said or "SNAKEMAKE_PROFILE" in os.environ or _has_profile_with_cores(self.flags)
        ):
            cores = ["--cores", str(count_usable_cores())]
        return [*self.targets, *cores, *self.flags, *self.configuration.words]

    @property
    def only_looks(self) -> bool:
        """Return whether a flag makes Snakemake run no stage."""
        return any(_ONLY_LOOKS.fullmatch(flag) for flag in self.flags)

    @property
    def unlock(self) -> str:
        """Return the command that unlocks a locked folder."""
        files = map(str, self.configuration.files)
        return shlex.join(["tandem", "run", *files, "--", "--unlock"])


def main(words: list[str]) -> int:
    """tandem run [FILE.yaml …] [TARGET …] [--config KEY=VALUE …] [-- FLAGS OF SNAKEMAKE]

    Make everything that a configuration asks for, or some targets of it (`baseline`, `rocketqav2_table4`, `audits`, a
    file), and end with the answer: the best system, by how much it is better than BM25, p, what hurt, the report.
    Without a file: config/config.yaml.

    On a terminal one line shows what runs now and how long the rest takes; in a pipe there is a line per job.
    Snakemake's own output goes to a file below logs/. Ctrl-C stops the running stages, and so do SIGTERM (`kill`, a
    batch system) and a closed terminal; the same command resumes the run. The exit status is Snakemake's.

        tandem run
        tandem run mine.yaml baseline
        tandem run mine.yaml --config seed=7 -- --cores 4 --keep-going
        tandem run mine.yaml -- -n
    """
    request = read_request(words)
    plan = request.configuration.plan()
    check_owner(plan.views, request.configuration.files)
    check_targets(plan, request.targets)
    log = LOGS / f"run-{time.strftime('%Y%m%d-%H%M%S')}.log"
    forecast = run_progress.Forecast(
        plan, run_progress.list_requested_stages(plan, request.targets)
    )
    line = run_progress.ProgressLine(plan.stages, forecast)
    environment = with_library(os.environ)
    computing = any(
        declaration(each.kind).uses_gpu(each.upstream, each.execution) for each in forecast.stages
    )
    with ExitStack() as servers:
        address = (
            servers.enter_context(serve_warm(for_stages(environment), computing=computing))
            if forecast.stages and not request.only_looks
            else {}
        )
        own = {RUN: str(os.getpid())}
        snakemake = Snakemake(request.words, log, environment | address | own)
        run, status = snakemake.follow(line)
    if snakemake.stopped:
        say(f"Snakemake's output: {log}\ntandem run: stopped; the same command goes on from there")
    elif status:
        say("\n".join(explain_failure(run, plan.stages, log, request.unlock, status)))
    elif not run.executes:  # with a flag such as -n, whose output is shown
        print(log.read_text(encoding="utf-8", errors="replace"), end="")
    else:
        say(
            f"{run.done} stages in {format_duration(time.monotonic() - forecast.began)}; Snakemake's output: {log}"
        )
        show_answer(plan, request.targets)
    return status


def read_request(words: Sequence[str]) -> RunRequest:
    """Read a command line.

    Raises:
        UserError: a file does not exist, a flag is on the wrong side of `--`, or there are several configurations.
    """
    at = words.index("--") if "--" in words else len(words)
    own, flags = list(words[:at]), list(words[at + 1 :])
    for flag in flags:
        hint = ELSEWHERE.get(flag.partition("=")[0], ELSEWHERE.get(flag[:2]))
        if hint is not None:
            raise UserError(f"{flag} is not allowed after --; {hint}")
    for flag, following in pairwise([*flags, ""]):
        no_cores = _NO_CORES.fullmatch(flag) or _NO_CORES.fullmatch(f"{flag} {following}")
        if no_cores:
            raise UserError(f"{no_cores[0]}: no stage could run; allowed: 1 or more")
    configurations, rest = read_configurations(own)
    targets, files = split_files(rest)
    configuration = choose_configuration(configurations, files, "run")
    for target in targets:
        if target.startswith("-"):
            raise UserError(
                f"{target} is not allowed here; flags of Snakemake stand after --: tandem run -- {target}"
            )
    for file in configuration.files:
        if not file.is_file():
            raise UserError(f"{file}: no such file{_suggest_configuration(file)}")
    return RunRequest(configuration, targets, flags)


def _has_profile_with_cores(flags: Sequence[str]) -> bool:
    """Return whether the workflow profile has `cores` or `jobs`, which a flag of Tandem's would override.

    The profile is one that a flag names, or one where Snakemake looks by default.
    """
    name = "default"
    for flag, value in pairwise([*flags, ""]):
        key, is_joined, joined = flag.partition("=")
        if key == "--workflow-profile":
            name = joined if is_joined else value
    places = (Path(name), Path("profiles", name), ROOT / "profiles" / name)
    profile = next((place for place in places if place.exists()), None)
    if name == "none" or profile is None:
        return False
    files = [profile]
    if profile.is_dir():
        files = [file for file in profile.iterdir() if _PROFILE.fullmatch(file.name)]
    configs = [read_yaml(file) for file in files]
    return any(isinstance(config, dict) and {"cores", "jobs"} & config.keys() for config in configs)


def _suggest_configuration(file: Path) -> str:
    """Return the end of a line about a configuration that does not exist: a file next to it, or how to write one."""
    beside = [str(path) for path in file.parent.glob("*.yaml")]
    if beside:
        return nearest(str(file), beside)
    return f"; `tandem init {file.stem} --data FOLDER` writes one" if file.parent.is_dir() else ""


def check_targets(plan: FullPlan, targets: Sequence[str]) -> None:
    """Print what the targets lack; a `UserError` for a target that is unknown or cannot be built."""
    for target in targets or ["all"]:
        if target in _PRINTED_TABLE:
            raise UserError(f"{target} is a command of its own: {_PRINTED_TABLE[target]}")
        if target not in plan.targets() and Path(target).is_dir():
            command = f"tandem init NAME --data {shlex.quote(target)}"
            raise UserError(f"{target} is a folder; `{command}` writes a configuration for it")
        for text in plan.check(target):
            say(text)


class Snakemake:
    """Run Snakemake on this checkout's Snakefile.

    It has a session of its own, so that Ctrl-C reaches only `tandem run`. If the pipes that write a stage's log ended
    with it, the stage could not report that it has saved its state.

    The first of `INTERRUPTS` stops the run, and so does a stage that such a signal has ended, which Snakemake would
    otherwise try again. After that only a further Ctrl-C counts, and ends the stages at once; other signals do not,
    since schedulers and shells send several.

    Args:
        words: of its command line: targets first.
        log: the file that its output and that of its jobs go to.
        environment: the environment of its process, and so of the stages.
    Raises:
        UserError: the log cannot be written.
    """

    def __init__(self, words: list[str], log: Path, environment: dict[str, str]) -> None:
        self.stopped = False
        self._interrupted: set[psutil.Process] = set()  # stages that were sent a signal
        self._events: SimpleQueue[run_progress.Event | signal.Signals | None] = SimpleQueue()
        # Signals are queued: an exception could come when nothing catches it, and would leave jobs running.
        self._before = {caught: signal.getsignal(caught) for caught in INTERRUPTS}
        for caught, handler in self._before.items():
            if handler != signal.SIG_IGN:  # `nohup` sets it
                signal.signal(caught, self._note_signal)
        read, write = os.pipe()
        events = [
            "-s",
            str(ROOT / "Snakefile"),
            "--logger",
            "tandem",
            f"--logger-tandem-fd={write}",
        ]
        words, secrets = set_aside(words, "CONFIG")  # Snakemake's log begins with its command
        environment = environment | secrets
        try:
            log.parent.mkdir(exist_ok=True)
            with log.open("ab") as output, _heed_interrupts():
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "snakemake", *events, *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                    pass_fds=[write], start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self._restore_handlers()
            raise UserError(
                f"{log}: cannot be written: {error.strerror}; work in another folder"
            ) from None
        os.close(write)
        Thread(target=self._read, args=(read,), daemon=True).start()

    def _note_signal(self, number: int, _: object) -> None:
        self._events.put(signal.Signals(number))

    def _restore_handlers(self) -> None:
        for caught, handler in self._before.items():
            signal.signal(caught, handler)

    def _read(self, descriptor: int) -> None:
        try:
            with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._events.put(run_progress.Event.model_validate_json(line))
        finally:
            self._events.put(None)

    def follow(self, line: run_progress.ProgressLine) -> tuple[run_progress.Run, int]:
        """Show the progress until Snakemake ends; return the state of the run, and the exit status."""
        run = run_progress.Run()
        try:
            while self._next(run, line):
                pass
            status = self.process.wait()
        except Exception:  # an error here must not leave Snakemake running unseen
            self.stop()
            raise
        finally:
            self._restore_handlers()
        line.clear()
        return run, status if status >= 0 else 128 - status

    def _next(self, run: run_progress.Run, line: run_progress.ProgressLine) -> bool:
        """Take the next event, or look at the progress if there is none for a moment; False at the end."""
        try:
            event = self._events.get(timeout=TICK)
        except Empty:
            line.name_slow_stages(run)
            line.refresh(run)
            if self.stopped:
                self._interrupt_stages()  # one may have begun since the last call
            return True
        if isinstance(event, signal.Signals):
            if not self.stopped:
                hint = "; Ctrl-C again ends them at once" if event == signal.SIGINT else ""
                line.say(f"stopping: trainings save their state{hint}")
            if not self.stopped or event == signal.SIGINT:
                self.stop()
        elif event:
            run.take(event)
            if event.event == "job_info":
                line.begin(run, run.running[event.jobid])
            if not self.stopped and (ended_by := interrupt_in_background(event)):
                line.say(f"stopping: {ended_by.name} has ended a stage")
                self.stop()
        return event is not None

    def stop(self) -> None:
        """Make Snakemake begin nothing more, and its jobs end; trainings save their state, but not at a second call."""
        self.stopped = True
        self.process.send_signal(signal.SIGINT)
        self._interrupted.clear()
        self._interrupt_stages()

    def _interrupt_stages(self) -> None:
        """Send SIGINT to the stages that have not been sent one."""
        with suppress(psutil.Error):  # Snakemake may have ended meanwhile
            for stage in {
                *find_stage_processes(psutil.Process(self.process.pid))
            } - self._interrupted:
                self._interrupted.add(stage)
                stage.send_signal(signal.SIGINT)


@contextmanager
def _heed_interrupts() -> Iterator[None]:
    """Make processes that start inside this block react to SIGINT, which a shell makes its background jobs ignore.

    Children inherit signals that a process ignores; for signals that it handles, they start with the default.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_in_background(event: run_progress.Event) -> signal.Signals | None:
    """Return the signal of `INTERRUPTS` that ended the command of a failed job; None for other events."""
    found = _STATUS.findall(event.message) if event.event == "error" else []
    causes = {status or name for status, name in found}
    return next((one for one in INTERRUPTS if {one.name, str(SIGNALLED + one)} & causes), None)


def find_stage_processes(process: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the processes of Tandem's commands below a process, but not their children: launchers stop their ranks."""
    for child in process.children():
        words = child.cmdline()
        if ("-m", "tandem") in pairwise(words):
            yield child
        else:
            yield from find_stage_processes(child)


def show_answer(plan: FullPlan, targets: Sequence[str]) -> None:
    """Print the table with the most systems among the targets' tables, and its answer; without a table, the targets.

    A table of an earlier configuration, which a flag such as `--until` leaves unchanged, does not count.
    """
    page = (
        Path(plan.views, "report.html") if not targets or {"all", "report"} & set(targets) else None
    )
    known = run_progress.list_tables_of_targets(plan)
    names = (
        plan.tables.requested()
        if page
        else [name for target in targets for name in known.get(target, ())]
    )
    names = [name for name in names if name in plan.tables]
    made = [name for name in names if is_table_made(plan, name)]
    if not made:
        print(f"{'not made' if names else 'done'}: {' '.join(targets) or page}")
        return
    tables = [
        (read_table(file.with_suffix(".json")), file)
        for file in map(Path, plan.tables.files(*made))
    ]
    table, file = max(
        tables, key=lambda pair: sum(row.cells[0].value is not None for row in pair[0].rows)
    )
    print(align_text(make_table_grid(table, terminal=True)), end="\n\n")
    print("\n".join(list_answer_lines(table, Path(page or file.with_suffix(".html")).absolute())))


def list_answer_lines(table: Table, page: Path) -> list[str]:
    """Return five lines: the best system, its gain over the reference, p, systems that are worse, and the page."""
    best = table.best
    if best is None:
        return [f"report  {page}"]
    gain = p = "–"
    if best.gain is not None:
        gain, p = f"{format_difference(best.gain, 1)} over {best.over}", format_p(best.p)
        p += "" if best.p is not None and best.p < LEVEL else ": not significant"
    worse = list_hurt(table)
    value = f"{format_number(best.value, 1)}{name_scored_queries(best)}"
    return [
        f"best    {best.system}: {best.measure} {value}",
        f"gain    {gain}",
        f"p       {p}",
        f"hurt    {name_losses(worse) if worse else 'nothing, significantly'}",
        f"report  {page}",
    ]
