"""How a command begins.

Stages, which rules call forty times in a run, start here without the machinery of `cli.py`.
"""

import io
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tandem.cluster.faults import explain_fault, require_address_space
from tandem.cluster.launch import lock_output, place, run_as_rank
from tandem.cluster.progress import JOB_CONTEXTS
from tandem.cluster.scheduler import Try
from tandem.cluster.threads import (
    is_waiting_decided,
    others_compute,
    sleep_at_once,
    wait_briefly,
)
from tandem.commands import COMMANDS
from tandem.errors import UserError
from tandem.plugins import load_plugins
from tandem.redaction import without_secrets
from tandem.stages import KINDS, is_stage
from tandem.stages.base import flag_value, parse_value
from tandem.store.job import load, read_job, run_shard


def run_command() -> int:
    """Run one command; a user's mistake is one line on standard error and, as a rule, exit status 1."""
    words = sys.argv[1:]
    command, attempt = words[0] if words else "", None
    choose_waiting(words, command)
    try:
        # plugins may declare the kind of stage itself
        if plugins := flag_value(words, "--run.plugins"):
            named = parse_value(plugins)
            load_plugins([named] if isinstance(named, str) else named)
        # `tandem encoder NAME` shows how its vectors are made
        shown = command == "encoder" and "--out" not in words
        if is_stage(command) and "--help" not in words[1:2] and not shown:
            attempt = Try(words)
            return run_stage(words, attempt)
        from tandem.cli import run  # a tenth of a second, which stages need not wait for

        # A terminal shows ? where its locale lacks a sign (─, ▲); a file has an escape, so that nothing is lost.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace" if sys.stdout.isatty() else "backslashreplace")
        known = COMMANDS.get(command)
        if known and known.leaves_drafts:
            load("extras.ended:end_by_signals")()
        return run(words)
    except UserError as error:
        print(f"tandem {command}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt as error:
        resumes = is_stage(command) or getattr(COMMANDS.get(command), "resumes", False)
        hint = "; the same command goes on with what is done" if resumes else ""
        print(f"tandem {command}: stopped{hint}", file=sys.stderr)
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    except SystemExit:
        raise
    except BaseException as error:  # a panic of a library in Rust is not an `Exception`
        if attempt:
            attempt.failed()
        line = explain_fault(error)
        text = (
            load("extras.plugin_checks:format_traceback")(error)
            if line is None
            else f"tandem {command}: {line}\n"
        )
        print(without_secrets(text), end="", file=sys.stderr)
        return 1


def choose_waiting(words: list[str], command: str) -> None:
    """Choose how threads of libraries that are loaded from now on wait, so that these cores do the most work now.

    `tandem run` computes nothing and leaves the choice to the stages that it starts. The threads of a stage with one
    thread wait for nobody.
    """
    if command == "run":
        return
    alone = not is_stage(command) or flag_value(words, "--run.workers") == "1"
    # if the choice is made already, as in a warm process, other processes need not be looked for
    if alone or is_waiting_decided(os.environ) or not others_compute():
        wait_briefly(os.environ)
    else:
        sleep_at_once(os.environ)


def run_stage(words: list[str], attempt: Try) -> int:
    """Run a stage or a shard with its lock, its devices and the contexts of packages; return the exit status."""
    require_address_space(words)
    with lock_output(words, os.environ) as finished, run_as_rank():
        if finished:
            return 0
        status = place(words)
        if status is not None:
            if status:
                attempt.failed(status)
            return status
        with ExitStack() as contexts:
            for context in JOB_CONTEXTS.values():
                contexts.enter_context(load(context)(words))
            if words[0] not in KINDS:
                run_shard(words[0], words[1:])
                return 0
            # a stage's time includes importing torch; a mistake in its words is reported before that
            job = read_job(words[0], words[1:], time.monotonic())
            function = load(KINDS[words[0]].run)
            function(job)
            if "RANK" not in os.environ and not (out := Path(flag_value(words, "--out"))).is_file():
                raise UserError(
                    f"has ended without {out}; a stage's function writes it at the end of `with writing(job)`"
                )
            return 0
