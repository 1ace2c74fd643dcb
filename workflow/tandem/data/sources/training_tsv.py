"""Training pairs as RocketQA and DuReader-retrieval publish them: texts by tabs, without ids.

`dual`: query, title and text of a positive, title and text of a negative, a column that says nothing. `cross`: query,
title, text, label.
"""

from collections.abc import Iterator
from pathlib import Path

from tandem.data.reading import fields
from tandem.errors import UserError

Mention = tuple[str, str, str, int]  # query, title as it stands there, text, label 1 or 0


def mentions(dual: Path | None, cross: Path | None) -> Iterator[Mention]:
    """Every labelled pair of both files, in order; a line of `dual` is two.

    Raises:
        UserError: another number of columns, or a label that is neither 0 nor 1.
    """
    if dual:
        for _, columns in fields(dual, "query, title, positive, title, negative, 0", 6):
            yield columns[0], columns[1], columns[2], 1
            yield columns[0], columns[3], columns[4], 0
    if cross:
        for where, (query, title, text, label) in fields(cross, "query, title, text, label", 4):
            if label not in ("0", "1"):
                raise UserError(f"{where}: label is {label[:40]!r}; 0 and 1 are allowed")
            yield query, title, text, int(label)
