"""What a process that torchrun started owes its launcher: to leave errors to it, and to end with it."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.artifact import write_json
from tandem.errors import UserError

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torchrun's: where a rank says why it failed
LAUNCHER = "TANDEM_LAUNCHER"  # the launcher's process id
GRACE = 2.0  # seconds; torchrun looks after its ranks ten times a second
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


@contextmanager
def as_rank() -> Iterator[None]:
    """Run a stage as a rank, if this process is one.

    A user's mistake goes to the launcher, which says it once whoever found it. Any other error waits for a moment
    before it is shown: where it only follows from another rank's end, the launcher stops this process meanwhile.
    """
    if ERROR_FILE not in os.environ or LAUNCHER not in os.environ:
        yield
        return
    _end_with_launcher()
    try:
        yield
    except UserError as error:
        write_json(Path(os.environ[ERROR_FILE]), {"message": str(error), "timestamp": int(time.time())})
        sys.exit(1)
    except Exception:
        time.sleep(GRACE)
        raise


def _end_with_launcher() -> None:
    """Have the kernel kill this process with its launcher: a rank that went on would spoil the work of the next try."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHER]):  # it has ended already
        sys.exit(1)
