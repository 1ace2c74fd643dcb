"""How much memory this process has had."""

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_mib() -> int:
    """MiB: the most that this process has had in memory since its program began.

    `ru_maxrss` alone would count what the process that started it had, too: Snakemake has more than many a stage.
    """
    with suppress(OSError):
        if told := re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE):
            return int(told[1]) >> 10
    unit = 20 if sys.platform == "darwin" else 10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> unit
