"""The command line: `python -m tandem <command> …`."""

import sys

from tandem.extras.running.warm import leave, run_warm


def main() -> int:
    """Run one command; a user's mistake is one line on standard error and, as a rule, exit status 1."""
    # importing it takes half a second; a warm process has imported it already
    from tandem.start import run_command

    return run_command()


if __name__ == "__main__":
    status = run_warm(sys.argv[1:])
    leave(main() if status is None else status)
