"""JSON lines: one object a line, keys beside the role's left alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.reading import records
from tandem.data.sources.own.roles import Role


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, field → value) of each line."""
    for where, record in records(path):
        yield where, {field: record[name] for field, name in role.resolve(where, record).items()}
