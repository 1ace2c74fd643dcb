"""Tab-separated files without quoting, with or without a header line; TREC qrels by white space."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tandem.data.reading import lines
from tandem.data.sources.own.roles import Role
from tandem.errors import UserError


def header(path: Path, role: Role) -> tuple[str, ...] | None:
    """The fields that the first line names; None where it is a record: a header holds nothing but names of fields."""
    for _, line in lines(path):
        fields = [role.field_of(name.strip().lower()) for name in line.split("\t")]
        known = tuple(field for field in fields if field is not None)
        needed = role.fields.keys() - role.optional
        return known if len(known) == len(fields) and needed <= set(known) else None
    return None


def read(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, field → column) of each line, its order told by the header or by the number of columns."""
    named = header(path, role)
    orders = {len(named): named} if named else role.columns
    name = str(path)
    for number, line in lines(path):
        if number == 1 and named:
            continue
        spaced = role.spaced and "\t" not in line
        columns = line.split() if spaced else line.split("\t")
        order = orders.get(len(columns))
        if order is None or (spaced and len(columns) != 4):
            by = "white space" if spaced else "tabs"
            needed = f"the header names {len(named)}" if named else f"a line is {role.line}"
            raise UserError(f"{path}:{number}: {len(columns)} columns by {by}; {needed}")
        yield f"{name}:{number}", dict(zip(order, columns, strict=True))


def read_answers(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file:line`, id and answers) of each line: an id and at least one answer."""
    for number, line in lines(path):
        query, *answers = line.split("\t")
        if not answers:
            raise UserError(f"{path}:{number}: 1 column by tabs; a line is {role.line}")
        yield f"{path}:{number}", {"id": query, "answers": answers}
