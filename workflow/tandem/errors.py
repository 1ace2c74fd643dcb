"""The one exception for a user's mistake."""

LONGEST = 2400  # characters of a line; some name all that is allowed


class UserError(Exception):
    """Something the user can mend: one line that names the file or key, what was found and what is allowed.

    The command line prints it without a traceback and exits with status 1. What of a value cannot be seen is escaped,
    since no control character of a file is to reach the terminal; of a line of thousands of characters the middle is
    left out.
    """

    def __init__(self, told: str) -> None:
        super().__init__("\n".join(map(_readable, told.split("\n"))))


def _readable(line: str) -> str:
    """A line of at most `LONGEST` characters with every one that cannot be seen as Python writes it."""
    if not line.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


class Unavailable(UserError):
    """What a dataset does not have, such as a split: a mistake only where something that needs it is wanted."""
