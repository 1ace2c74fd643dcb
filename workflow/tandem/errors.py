"""The one exception for a user's mistake."""

LONGEST = 2400  # characters of a line; some lines list all allowed values


class UserError(Exception):
    """Something the user can mend: one line that names the file or key, the value found and what is allowed.

    The command line prints it without a traceback and exits with status 1. Unprintable characters are escaped, since no
    control character of a file may reach the terminal; the middle of a line of thousands of characters is left out.
    """

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(_readable, message.split("\n"))))


def _readable(line: str) -> str:
    """A line of at most `LONGEST` characters, unprintable ones as Python writes them."""
    if not line.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


class Unavailable(UserError):
    """Something that a dataset lacks, such as a split: a mistake only where a wanted result needs it."""
