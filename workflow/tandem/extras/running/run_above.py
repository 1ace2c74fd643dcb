"""Have the `tandem run` that a stage belongs to stop with it, before Snakemake could try the stage again."""

import os
import signal
import time
from contextlib import suppress

RUN = "TANDEM_RUN"  # the number of its process, in the environment of its stages
# What somebody ends a stage by. Ctrl-C reaches the run itself, and what slurm warns by ends no run.
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_HEAD_START = 0.5  # seconds


def stop_run(number: int) -> None:
    """Pass a signal that ends this stage on to its run, if that is above this process on this machine.

    The run then has a moment to stop Snakemake, which tries a job again as soon as its process has ended.
    """
    run = os.environ.get(RUN)
    if run is None or number not in PASSED_ON:
        return
    import psutil  # who begins a stage need not wait for it

    with suppress(psutil.Error):  # one of them has ended meanwhile
        for process in psutil.Process().parents():
            if str(process.pid) == run:
                process.send_signal(number)
                time.sleep(_HEAD_START)
