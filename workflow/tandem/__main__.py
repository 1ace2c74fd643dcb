"""The command line: `python -m tandem <command> …`."""

import os
import sys
from contextlib import suppress
from typing import NoReturn

from tandem.warm import run_warm


def main() -> int:
    """Run one command; a user's mistake is one line on standard error and, as a rule, exit status 1."""
    status = run_warm(sys.argv[1:])
    if status is not None:
        return status
    from tandem.start import (
        run_command,
    )  # half a second, which a process that is warm has behind it

    return run_command()


def leave(status: int) -> NoReturn:
    """End this process; after a failure without the libraries' clean-up, which without memory fails at length."""
    if status:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit()


if __name__ == "__main__":
    leave(main())
