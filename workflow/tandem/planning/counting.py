"""What the statistics tables count: the datasets that are on this machine; of the others, what it would take."""

from dataclasses import dataclass
from pathlib import Path

from tandem.data.catalogue import presences, read_entries
from tandem.errors import UserError
from tandem.planning.graph import Stage
from tandem.planning.resolver import Resolver
from tandem.reporting.statistics_layout import load_statistics

HERE = ("here", "local")


@dataclass(frozen=True)
class Present:
    """The datasets of one table.

    Attributes:
        stages: name → the stage that makes it, of those that are here.
        absent: name → why it is not counted.
    """

    stages: dict[str, Stage]
    absent: dict[str, str]


def count(layout: Path, resolver: Resolver) -> Present:
    """Which of a table's datasets can be counted without any download."""
    known = resolver.config["datasets"]
    needed = [name for name in load_statistics(layout).needed if name in known]
    stages: dict[str, Stage] = {}
    absent = {}
    for name, found in presences(needed, read_entries(known)).items():
        if found.state not in HERE:
            absent[name] = f"not here ({str(found).removeprefix('download ')})"
            continue
        try:
            stages[name] = resolver.dataset(name)
        except UserError as error:
            absent[name] = f"not here ({error})"
    return Present(stages, absent)
