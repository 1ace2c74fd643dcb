"""Why a run failed: the last messages of the failed stages, or of Snakemake itself."""

import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tandem.cluster.faults import DISK, RUN_AGAIN, WRITABLE, explain_fault
from tandem.cluster.scheduler import SIGNALLED
from tandem.errors import shortened
from tandem.extras.running.run_progress import BegunJob, Run, describe_job
from tandem.plan.graph import Stages

_KILLED_STATUS = SIGNALLED + signal.SIGKILL
_LONGEST_WORDS = 600  # characters of Snakemake's own words
TRACEBACK = "Traceback (most recent call last)"
_TANDEM_LINE = re.compile(r"tandem [\w-]+: ")
# Snakemake's words about a failed job
FAILED = re.compile(r"^ *log: (.+) \(check log file", re.MULTILINE)
_ERROR = re.compile(r"[\w.]+(Error|Exception): ")  # the last line of a traceback
ERRNO = re.compile(r"\[Errno (\d+)\][^:]*(?:: '(.+?)')?")
# Snakemake's words about an object, which may be a path with spaces, followed by the plugin's reason. Lines between
# them state only the kind of an error.
_STORAGE = re.compile(
    r"^ *Failed to (\w+) (?:output in storage|storage object(?: from)?|\w+ of|expected local footprint .*? of) "
    r"(.+)\n(?: *[\w.]+:\n)* *(?:[\w.]+: )?(.+)",
    re.MULTILINE,
)
# The words of a shell or of Python on a node that lacks the interpreter, or a package, that Snakemake was started with.
_MISSING = re.compile(
    r"^(?:.*: (?:line )?\d+: )?(\S*python[\d.]*): "
    r"(No such file or directory|not found|command not found|No module named \S+)$"
)
# What an executor says of a job that a batch system did not accept; the reason may span lines.
_REFUSED = re.compile(r"ob submission failed with exception: (.+?)For further error details", re.S)
# Snakemake's last line, whatever the cause
_NO_CAUSE = "At least one job did not complete successfully."
PROTECTED = re.compile(r"Write-protected output files .*? affected files: (\S+)")


def explain_failure(run: Run, stages: Stages, log: Path, unlock: str, status: int = 1) -> list[str]:
    """Explain why a run failed; the last line begins with `tandem` and states the remedy.

    Args:
        log: the file of Snakemake's own output.
        unlock: the command that unlocks a locked folder.
        status: Snakemake's exit status, as a shell reports it: 137 after SIGKILL.
    """
    lines = [f"Snakemake's output: {log}"]
    for job in run.failed.values():
        what = describe_job(job, stages)
        lines += [
            f"{what} failed; its log: {', '.join(job.log) or log}",
            _explain_job(job, run, log, f"tandem run: {what}"),
        ]
    if run.failed:
        return lines
    if any(error.exception == "LockException" for error in run.errors):
        problem = f"{Path.cwd()} is locked by another run, or by one that was killed"
        return [*lines, f"tandem run: {problem}; if none is running: {unlock}"]
    if status - SIGNALLED in signal.valid_signals():
        name = signal.Signals(status - SIGNALLED).name
        memory = ", perhaps for want of memory" if status == _KILLED_STATUS else ""
        again = f"free the folder: {unlock}; then the same command goes on with what is done"
        return [*lines, f"tandem run: Snakemake was ended by {name}{memory}; {again}"]
    return [*lines, f"tandem run: {find_snakemake_words(run, log)}"]


def _explain_job(job: BegunJob, run: Run, log: Path, what: str) -> str:
    """Return the `tandem …:` line at the end of a job's log, or its last words."""
    words = read_stage_words(job.log)
    if words:
        return words
    text = "\n".join(read_lines(log))
    problem = (
        explain_storage("\n".join(error.message for error in run.errors))
        or explain_missing_environment(text)
        or explain_refused_job(text)
    )
    if problem:
        return f"tandem run: {problem}"
    statuses = [
        int(status)
        for error in run.errors
        for status in re.findall(r"exit status (\d+)", error.message)
    ]
    lines = read_lines(*job.log)
    # A status may belong to another job, or to an earlier try; a stage that ended with a traceback was not killed.
    fell_over = any(line.startswith(TRACEBACK) for line in lines)
    if _KILLED_STATUS in statuses and not fell_over:
        return f"{what} was killed, perhaps for want of memory; the same command goes on with what is done"
    status = f" with status {statuses[-1]}" if statuses else ""
    if lines:
        last_words = shortened(_find_last_words(lines), _LONGEST_WORDS)
        return f"{what} ended{status}; its last words: {last_words}"
    fault = _find_write_fault(log)
    if fault:
        return f"{what} ended{status}: {_explain_disk(fault) or fault}"
    return f"{what} ended{status} and said nothing"


def _find_last_words(lines: list[str]) -> str:
    """Return the last line; for a traceback, the first line of the error's message, which may span lines, as Java's."""
    beginnings = [number for number, line in enumerate(lines) if line.startswith(TRACEBACK)]
    if not beginnings:
        return lines[-1]
    below = lines[beginnings[-1] + 1 :]
    return next((line for line in below if not line[0].isspace()), lines[-1])


def read_stage_words(logs: Iterable[str]) -> str:
    """Return a stage's last `tandem …:` line and what follows; empty if there is none, or a traceback came after it."""
    lines = read_lines(*logs)
    last = max(
        (number for number, line in enumerate(lines) if _TANDEM_LINE.match(line)),
        default=len(lines),
    )
    if any(line.startswith(TRACEBACK) for line in lines[last:]):
        return ""
    return "\n".join(lines[last:])


def read_failed_words(logs: Iterable[str]) -> str:
    """Return the last words of the failed stages, or what a storage refused, from Snakemake's logs of a run.

    Empty if there are none.
    """
    text = "\n".join(read_lines(*logs))
    named = dict.fromkeys(FAILED.findall(text))
    words = "\n".join(filter(None, (read_stage_words(paths.split(", ")) for paths in named)))
    return (
        words
        or explain_storage(text)
        or explain_missing_environment(text)
        or explain_refused_job(text)
    )


def explain_missing_environment(text: str) -> str:
    """Return, in one line, which Python or package the node of a failed job lacks; empty if it lacked none.

    Args:
        text: Snakemake's log, which names the logs of the failed jobs. The log of a cluster has the node's words; the
            stage's log is missing, or empty, if the stage did not start.
    """
    for paths in dict.fromkeys(FAILED.findall(text)):
        for path in paths.split(", "):
            for line in read_lines(path):
                if missing := _MISSING.match(line.strip()):
                    hint = "install the environment where all nodes see it (docs/how_to/slurm.md)"
                    return f"{path}: {missing[1]}: {missing[2]} on the job's node; {hint}"
    return ""


def explain_refused_job(text: str) -> str:
    """Return, in one line, why a batch system did not accept a job; empty if it accepted all.

    Args:
        text: Snakemake's log.
    """
    refused = _REFUSED.findall(text)
    if not refused:
        return ""
    reason = shortened(" ".join(refused[-1].split()), _LONGEST_WORDS)
    hint = "correct the profile, or run where the batch system is (docs/clusters.md)"
    return f"a job was not submitted: {reason}; {hint}"


def explain_storage(text: str) -> str:
    """Return, in one line, what object storage refused first, with a remedy; empty if it refused nothing.

    Args:
        text: Snakemake's messages, or its log.
    """
    failed = _STORAGE.search(text)
    if not failed:
        return ""
    verb, place, reason = failed.groups()
    hint = "once the storage can be read, the same command goes on (docs/storage.md)"
    if verb == "store":
        hint = "once the storage takes it, the same command stores what is finished here and goes on (docs/storage.md)"
    return f"{place}: {shortened(reason.strip(), _LONGEST_WORDS)}; {hint}"


def read_lines(*logs: str | Path) -> list[str]:
    """Read the lines of logs without the blank ones; a log that cannot be read has none."""
    lines = list[str]()
    for path in logs:
        with suppress(OSError):
            lines += Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.strip()]


def find_snakemake_words(run: Run, log: Path) -> str:
    """Return Snakemake's own error in one line, without its place in the Snakefile or its traceback."""
    messages = [error.message for error in run.errors if error.message.strip()]
    problem = explain_storage("\n".join(messages))
    if problem:
        return problem
    messages = [message for message in messages if _NO_CAUSE not in message] or messages
    if messages:
        lines = [line.strip() for line in messages[-1].splitlines() if line.strip()]
        last_error = max(
            (number for number, line in enumerate(lines) if _ERROR.match(line)), default=0
        )
        lines = lines[last_error:]
        words = [line for line in lines if not line.startswith("File ")] or lines
        if len(words) > 1 and words[0].endswith(":"):
            words = words[1:]
    else:  # it ended before it had set up its logger
        words = read_lines(log)[-1:] or [_find_write_fault(log) or "Snakemake ended without a word"]
    line = " ".join(words)
    return shortened(_explain_disk(line) or line, _LONGEST_WORDS)


def _find_write_fault(log: Path) -> str | None:
    """Return why a log could not be written, such as a full disk, in Python's words; None if it can be."""
    try:
        with log.open("ab") as file:
            file.write(b"\n")
    except OSError as error:
        error.filename = str(log)
        return str(error)
    return None


def _explain_disk(line: str) -> str | None:
    """Explain Snakemake's message about the disk, with a remedy; None for any other message."""
    protected = PROTECTED.search(line)
    if protected:
        return f"{protected[1]}: write-protected; {WRITABLE}, {RUN_AGAIN}"
    failed = ERRNO.search(line)
    if failed and int(failed[1]) in DISK:
        number = int(failed[1])
        return explain_fault(OSError(number, os.strerror(number), failed[2]))
    return None
