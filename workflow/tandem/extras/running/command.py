"""The command `run`: make what a configuration asks for, by Snakemake, and end with the answer, or why none."""

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.cluster.progress import duration, say
from tandem.errors import UserError, nearest, shortened
from tandem.extras.operations.configurations import Configuration, read_configurations, split_files
from tandem.extras.plan import FullPlan
from tandem.extras.running.events import Job, Run, read_lines, stage_words
from tandem.extras.running.progress import Forecast, Line, Snakemake, describe, requested_stages
from tandem.plan.graph import Stages
from tandem.report import formats
from tandem.report.formats import table_grid
from tandem.report.page import aligned
from tandem.report.results import Table, read_table

LOGS = Path("logs")
PRINTED = {"datasets": "tandem datasets", "estimate": "tandem estimate"}  # rules that print and make nothing
ELSEWHERE = {
    "--config": "write it before --",
    "--configfile": "name the file before --",
    "--configfiles": "name the files before --",
    "--directory": "change to the folder",
    "-d": "change to the folder",
    "--snakefile": "run Snakemake itself",
    "-s": "run Snakemake itself",
}
CORES = ("--cores", "-c", "--jobs", "-j", "--profile")
LONGEST = 600  # characters of Snakemake's own words
KILLED = 137  # the status of a process that was ended by SIGKILL


@dataclass(frozen=True)
class Order:
    """What a command line asks for: a configuration, targets, and flags for Snakemake."""

    configuration: Configuration
    targets: list[str]
    flags: list[str]

    @property
    def words(self) -> list[str]:
        """Snakemake's words."""
        cores = [] if any(flag.startswith(CORES) for flag in self.flags) else ["--cores", "all"]
        own = self.configuration
        files = ["--configfile", *map(str, own.files)] if own.files else []
        return [*self.targets, *cores, *self.flags, *files, *(["--config", *own.values] if own.values else [])]

    def again(self, *flags: str) -> str:
        """This command line with other flags for Snakemake."""
        return " ".join(["tandem run", *map(str, self.configuration.files), "--", *flags])


def main(words: list[str]) -> int:
    """tandem run [FILE.yaml …] [TARGET …] [--config KEY=VALUE …] [-- FLAGS OF SNAKEMAKE]

    Make everything that a configuration asks for, or some targets of it (`baseline`, `rocketqav2_table4`, `audits`, a
    file), and end with the answer: the best system, by how much it is better than BM25, p, what hurt, the report.
    Without a file: config/config.yaml.

    On a terminal one line says what runs now and how long the rest takes; in a pipe there is a line per job.
    Snakemake's own output goes to a file below logs/. Ctrl-C stops the running stages; the same command goes on from
    there. The exit status is Snakemake's.

        tandem run
        tandem run mine.yaml baseline
        tandem run mine.yaml --config seed=7 -- --cores 4 --keep-going
        tandem run mine.yaml -- -n
    """
    order = read_order(words)
    plan = order.configuration.plan()
    check_targets(plan, order.targets)
    log = LOGS / f"run-{time.strftime('%Y%m%d-%H%M%S')}.log"
    forecast = Forecast(plan, requested_stages(plan, order.targets))
    line = Line(plan.stages, forecast)
    snakemake = Snakemake(order.words, log)
    for number in (signal.SIGTERM, signal.SIGHUP):  # of a batch system, and of a terminal that is closed
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` has it
            signal.signal(number, signal.default_int_handler)
    run, status = snakemake.follow(line)
    if snakemake.stopped:
        say(f"Snakemake's output: {log}\ntandem run: stopped; the same command goes on from there")
    elif status:
        say("\n".join(failure_lines(run, plan.stages, log, order.again("--unlock"))))
    elif not run.executes:  # with a flag such as -n, whose output this is
        print(log.read_text(encoding="utf-8", errors="replace"), end="")
    else:
        say(f"{run.done} stages in {duration(time.monotonic() - forecast.began)}; Snakemake's output: {log}")
        print_answer(plan, order.targets)
    return status


def read_order(words: Sequence[str]) -> Order:
    """Read a command line.

    Raises:
        UserError: a file does not exist, a flag stands on the wrong side of `--`, or there are several configurations.
    """
    at = words.index("--") if "--" in words else len(words)
    own, flags = list(words[:at]), list(words[at + 1 :])
    for flag in flags:
        if (hint := ELSEWHERE.get(flag.partition("=")[0])) is not None:
            raise UserError(f"{flag} is not allowed after --; {hint}")
    configurations, rest = read_configurations(own)
    if len(configurations) > 1:
        raise UserError("--configfile and --config: one configuration is run at a time")
    targets, files = split_files(rest)
    for target in targets:
        if target.startswith("-"):
            raise UserError(f"{target} is not allowed here; flags of Snakemake stand after --: tandem run -- {target}")
    configuration = Configuration([*files, *configurations[0].files], configurations[0].values)
    for file in configuration.files:
        if not file.is_file():
            others = [str(path) for path in file.parent.glob("*.yaml")]
            raise UserError(f"{file}: no such file{nearest(str(file), others) if others else ''}")
    return Order(configuration, targets, flags)


def check_targets(plan: FullPlan, targets: Sequence[str]) -> None:
    """Say what the targets lack; a `UserError` for one that is unknown or cannot be made."""
    for target in targets or ["all"]:
        if target in PRINTED:
            raise UserError(f"{target} is a command of its own: {PRINTED[target]}")
        if target not in plan.targets() and Path(target).is_dir():
            raise UserError(f"{target} is a folder; `tandem init NAME --data {target}` writes a configuration for it")
        for text in plan.check(target):
            say(text)


def print_answer(plan: FullPlan, targets: Sequence[str]) -> None:
    """Print the table with the most systems that the targets have made, and its answer; without one the targets."""
    wanted = set(targets) or {"all"}
    page = Path(plan.views, "report.html") if wanted & {"all", "report"} else None
    papers = plan.tables.papers | {name: [table] for name, table in plan.tables.targets.items()}
    names = plan.tables.requested() if page else [name for target in targets for name in papers.get(target, ())]
    if not (made := [name for name in names if name in plan.tables]):
        print(f"done: {' '.join(targets) or page}")
        return
    files = map(Path, plan.tables.files(*made))
    tables = [(read_table(file.with_suffix(".json")), file) for file in files]
    table, file = max(tables, key=lambda pair: sum(row.cells[0].value is not None for row in pair[0].rows))
    print(aligned(table_grid(table, terminal=True)), end="\n\n")
    print("\n".join(answer_lines(table, Path(page or file.with_suffix(".html")).absolute())))


def answer_lines(table: Table, page: Path) -> list[str]:
    """Five lines: the best system, by how much it is better than the reference, p, what hurt, and the page."""
    best, gain, p = table.best, "–", "–"
    if best is None:
        return [f"report  {page}"]
    if best.gain is not None:
        gain, p = f"{formats.signed(best.gain, 1)} over {best.over}", formats.probability(best.p)
        p += "" if best.p is not None and best.p < formats.LEVEL else ": not significant"
    worse = formats.hurt(table)
    return [
        f"best    {best.system}: {best.measure} {formats.number(best.value, 1)}",
        f"gain    {gain}",
        f"p       {p}",
        f"hurt    {formats.losses(worse) if worse else 'nothing, significantly'}",
        f"report  {page}",
    ]


def failure_lines(run: Run, stages: Stages, log: Path, unlock: str) -> list[str]:
    """Why a run failed; the last line begins with `tandem` and says what to mend.

    Args:
        log: of Snakemake's own output.
        unlock: the command that frees a locked folder.
    """
    lines = [f"Snakemake's output: {log}"]
    for job in run.failed.values():
        lines += [f"{describe(job, stages)} failed; its log: {', '.join(job.log) or log}", _why_job(job, run, stages)]
    if run.failed:
        return lines
    if any(error.exception == "LockException" for error in run.errors):
        problem = f"{Path.cwd()} is locked by another run, or by one that was killed"
        return [*lines, f"tandem run: {problem}; if none is running: {unlock}"]
    return [*lines, f"tandem run: {_why_snakemake(run, log)}"]


def _why_job(job: Job, run: Run, stages: Stages) -> str:
    """The `tandem …:` line at the end of a job's log, or its last words."""
    if own := stage_words([Path(path) for path in job.log]):
        return own
    what = f"tandem run: {describe(job, stages)}"
    statuses = [int(status) for error in run.errors for status in re.findall(r"exit status (\d+)", error.message)]
    if KILLED in statuses:
        return f"{what} was killed, perhaps for want of memory; the same command goes on with what is done"
    status = f" with status {statuses[-1]}" if statuses else ""
    words = [line for path in job.log for line in read_lines(Path(path))]
    return f"{what} ended{status}; its last words: {shortened(words[-1], LONGEST) if words else 'none'}"


def _why_snakemake(run: Run, log: Path) -> str:
    """Snakemake's own error in one line, without its place in the Snakefile."""
    if messages := [error.message for error in run.errors if error.message.strip()]:
        lines = [line.strip() for line in messages[-1].splitlines() if line.strip()]
        first, *rest = [line for line in lines if not line.startswith("File ")] or lines
        words = rest if rest and first.endswith(":") else [first, *rest]
    else:  # it did not come as far as its logger
        words = read_lines(log)[-1:] or ["Snakemake ended without a word"]
    return shortened(" ".join(words), LONGEST)
