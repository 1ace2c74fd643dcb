"""The columns of a collection's files by their names: which are read, and which are not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tandem.errors import printable


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file, or the keys of its JSON objects, if their names decide what is read.

    Attributes:
        fields: field → the name of the column that it is read from.
        unread: names of the other columns.
        absent: optional fields that no column has → the names that their column may have.
    """

    file: str
    fields: Mapping[str, str]
    unread: Sequence[str] = ()
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def describe_read(self) -> str:
        """Return what is read, with the names of the file: `docid as id, text`."""
        named = self.fields.items()
        return ", ".join(
            field if field == name else f"{printable(name)} as {field}" for field, name in named
        )

    def describe_unread(self) -> str:
        """Return what is not read: `headline, year; no column is the title (allowed: title)`; empty if all is read."""
        if not self.unread:
            return ""
        names = ", ".join(map(printable, self.unread))
        lacks = [
            f"no column is the {field} (allowed: {', '.join(allowed)})"
            for field, allowed in self.absent.items()
        ]
        return "; ".join([names, *lacks])


@runtime_checkable
class NamesColumns(Protocol):
    """A source that may find the columns of its files by their names."""

    def list_columns(self) -> list[FileColumns]:
        """Return the columns of each file that names its columns."""


def name_alike(columns: Sequence[FileColumns]) -> list[tuple[list[str], FileColumns]]:
    """Return groups of files that have the same columns: the files' names, and the columns of the first file."""
    groups: dict[tuple[str, str], tuple[list[str], FileColumns]] = {}
    for entry in columns:
        alike = (entry.describe_read(), entry.describe_unread())
        groups.setdefault(alike, ([], entry))[0].append(entry.file)
    return list(groups.values())
