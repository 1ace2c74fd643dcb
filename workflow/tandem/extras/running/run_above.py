"""Stop the `tandem run` that a stage belongs to together with the stage, before Snakemake could retry the stage."""

import os
import signal
import time
from contextlib import suppress

RUN = "TANDEM_RUN"  # variable in its stages' environment: its process id
# Signals by which somebody ends a stage. Ctrl-C reaches the run itself, and slurm's warning signal must end no run.
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_HEAD_START = 0.5  # seconds


def stop_run(number: int) -> None:
    """Pass a signal that ends this stage on to its run, if that is an ancestor of this process on this machine.

    The run then has a moment to stop Snakemake, which retries a job as soon as its process has ended.
    """
    run = os.environ.get(RUN)
    if run is None or number not in PASSED_ON:
        return
    import psutil  # imported late: a stage's start need not wait for it

    with suppress(psutil.Error):  # one of the processes may have ended meanwhile
        for process in psutil.Process().parents():
            if str(process.pid) == run:
                process.send_signal(number)
                time.sleep(_HEAD_START)
