"""The one exception for a user's mistake, and the words of its message."""

import difflib
import json
import re
from collections.abc import Iterable

from tandem.redaction import redacted, without_secrets

LONGEST = 2400  # characters of a line; some lines list all that is allowed
_MOST_LISTED = 20  # allowed names in a message
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # names that may be part of a key


class UserError(Exception):
    """Something the user can mend: one line that names the file or key, what was found and what is allowed.

    The command line prints it without a traceback and exits with its `status`. Characters that cannot be printed are
    escaped, since no control character of a file may reach the terminal; the middle of a line of thousands of
    characters is left out. Secrets are hidden.
    """

    status = 1

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(_readable, without_secrets(message).split("\n"))))


class Unavailable(UserError):
    """Raised where a dataset lacks something, such as a split: a mistake only if a target needs it."""


def _readable(line: str) -> str:
    if not line.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def nearest(word: str, known: Iterable[str], more: Iterable[str] = ()) -> str:
    """Return `; did you mean x?` or `; allowed: …`, to end a line about an unknown word.

    If very many words are known, only those most like the unknown one are listed. Words of `more` may be suggested,
    but are never listed.
    """
    known = list(known)
    close = difflib.get_close_matches(word, [*known, *more], 1)
    if close:
        return f"; did you mean {close[0]}?"
    listed = difflib.get_close_matches(word, known, _MOST_LISTED, cutoff=0.0) if known else ["none"]
    others = len(known) - len(listed)
    return f"; allowed: {', '.join(sorted(listed))}" + (f" and {others} more" if others > 0 else "")


def printable(key: object) -> str:
    """Return a key or value for a message of one line: as JSON if it has characters that cannot be printed."""
    text = str(key)
    return shortened(text if text.isprintable() else json.dumps(text))


def shortened(text: str, most: int = 300) -> str:
    """Return a text, or its beginning and length if it has more than `most` characters, as a whole file may have.

    Secrets of URLs are hidden first: a secret cut in the middle would not be recognised.
    """
    text = redacted(text)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
