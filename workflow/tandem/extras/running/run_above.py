"""Have the `tandem run` that a stage belongs to stop with it, before Snakemake could try the stage again."""

import os
import signal
from contextlib import suppress

import psutil

RUN = "TANDEM_RUN"  # the number of its process, in the environment of its stages
# What somebody ends a stage by. Ctrl-C reaches the run itself, and what slurm warns by ends no run.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def stop_run(number: int) -> None:
    """Pass a signal that has ended this stage on to its run, if that is above this process on this machine."""
    run = os.environ.get(RUN)
    if run is None or number not in _PASSED_ON:
        return
    with suppress(psutil.Error):  # one of them has ended meanwhile
        for process in psutil.Process().parents():
            if str(process.pid) == run:
                process.send_signal(number)
