"""Bands: how near a number must come to what is expected, and the verdict on one.

bands.yaml holds a list of entries; docs/papers.md says what their keys mean.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem.errors import UserError
from tandem.reporting.layouts import checked

CHOOSING = ("table", "row", "first_stage", "recipe", "dataset", "split", "measure")  # keys that say what an entry is of


@dataclass(frozen=True)
class Band:
    """What is expected of a number, in percent.

    Attributes:
        tolerance: as far from `value` is a match.
        near: as far from it is near.
        value: what is expected; None: what the paper prints.
        source: where value and tolerance come from.
        seeds: how many seeds it was measured with; None where that is not known.
        deviations: what differs from the paper.
        of: what it is of, by the keys of CHOOSING.
    """

    tolerance: float
    near: float
    source: str
    value: float | None = None
    seeds: int | None = None
    deviations: list[str] = field(default_factory=list)
    of: dict[str, str] = field(default_factory=dict)


def read_bands(path: Path) -> list[Band]:
    """The entries of bands.yaml, in its order.

    Raises:
        UserError: no YAML, a key or type that is not allowed, or a `near` below the tolerance.
    """
    content = checked(path, "bands.schema.json", "the list")
    bands = []
    for at, told in enumerate(content):
        of = {key: told.pop(key) for key in CHOOSING if key in told}
        bands.append(Band(**told, of=of))
        if bands[-1].near < bands[-1].tolerance:
            raise UserError(f"{path}: {at}.near is {told['near']}, below tolerance ({told['tolerance']})")
        if "dataset" in of and bands[-1].value is None:
            raise UserError(f"{path}: {at}: names dataset {of['dataset']}, but no value that is expected there")
    return bands


@dataclass(frozen=True)
class Bands:
    """All bands, and the name by which they choose a table."""

    entries: list[Band] = field(default_factory=list)
    table: str = ""

    def of(self, cell: dict[str, str], stands_in: bool, plain: bool = True) -> Band | None:
        """The band of a number: of the entries that fit the one that says most, the later of equals.

        Args:
            cell: the number's row, first_stage, recipe, dataset, split and measure, and the collection that the dataset
                is.
            stands_in: whether it is of another dataset than the paper's: only entries that name the dataset hold there.
            plain: whether it is the recipe's usual number; of some queries only, with other labels or with changes of
                the configuration an expected value holds only if it is that of the table.
        """
        told = {**cell, "table": self.table}
        fitting = [
            band
            for band in self.entries
            if all(_fits(told, key, value) for key, value in band.of.items())
            and ("dataset" in band.of or not stands_in)
            and (plain or band.value is None or "table" in band.of)
        ]
        return max(reversed(fitting), key=lambda band: len(band.of), default=None)


def _fits(cell: dict[str, str], key: str, value: str) -> bool:
    """Whether a number is what an entry says; a dataset also by the collection that it is."""
    return cell[key] == value or (key == "dataset" and cell["collection"] == value)


def verdict(value: float | None, printed: float | None, band: Band | None, wrong: str) -> str:
    """`match`, `near`, `off`, `printed number is wrong (why)`, or nothing where there is nothing to hold it against.

    Args:
        value: ours, in percent; None for a quoted number.
        printed: the paper's; None where it prints none or where ours stands in for another dataset.
        band: what is expected; its own value goes before the printed one.
        wrong: why the printed number is known to be wrong.
    """
    expected = printed if band is None or band.value is None else band.value
    if wrong and (band is None or band.value is None):
        return f"printed number is wrong ({wrong})"
    if value is None or expected is None or band is None:
        return ""
    far = round(abs(value - expected), 6)  # 0.3 away is within 0.3, whatever the last bits say
    return "match" if far <= band.tolerance else "near" if far <= band.near else "off"


def known(band: Band | None) -> dict[str, Any] | None:
    """A band as a table's JSON has it."""
    told = ("value", "tolerance", "near", "source", "seeds", "deviations")
    return None if band is None else {key: getattr(band, key) for key in told}
