"""Tolerance bands: which holds for a number, and what it says of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.config.tables import Band

# Keys that select a band.
CRITERIA = ("table", "row", "first_stage", "recipe", "dataset", "split", "queries", "measure")


@dataclass(frozen=True)
class Place:
    """What a number is of; `collection` is what its dataset is to the layout."""

    row: str
    first_stage: str
    recipe: str
    dataset: str
    collection: str
    split: str
    measure: str
    table: str = ""
    queries: int = 0


def criteria(band: Band) -> dict[str, object]:
    """The keys by which an entry is selected, and their values."""
    return {key: value for key in CRITERIA if (value := getattr(band, key)) is not None}


def select_band(bands: Sequence[Band], place: Place, stands_in: bool, usual: bool = True) -> Band | None:
    """The band of a number: of the entries that fit the one with the most criteria, the later of equals.

    Where another dataset stands in, only entries that name it hold. For a number that is not the recipe's `usual` one
    (of some queries, with other labels, with changed configuration) a band's value holds only if it names the table.
    """
    fitting = [
        band
        for band in bands
        if all(_fits(place, key, value) for key, value in criteria(band).items())
        and (band.dataset is not None or not stands_in)
        and (usual or band.value is None or band.table is not None)
    ]
    return max(reversed(fitting), key=lambda band: len(criteria(band)), default=None)


def _fits(place: Place, key: str, value: object) -> bool:
    return getattr(place, key) == value or (key == "dataset" and place.collection == value)


def verdict(value: float | None, printed: float | None, band: Band | None, wrong: str) -> str:
    """`match`, `near`, `off`, `printed number is wrong (why)`, or nothing where there is nothing to compare with.

    Our `value` in percent is compared with the band's value, else with the printed one; `wrong` is why that is wrong.
    """
    expected = printed if band is None or band.value is None else band.value
    if wrong and (band is None or band.value is None):
        return f"printed number is wrong ({wrong})"
    if value is None or expected is None or band is None:
        return ""
    distance = _distance(value, expected)
    return "match" if distance <= band.width else "near" if distance <= (band.near or 0.0) else "off"


def _distance(value: float, expected: float) -> float:
    return round(abs(value - expected), 6)  # 0.3 away is within 0.3, whatever the last bits say


def compare_before(value: float | None, band: Band | None) -> str:
    """`as measured before`, `not as measured before`, or nothing where it has not been measured before."""
    if value is None or band is None or band.value is None:
        return ""
    return "as measured before" if _distance(value, band.value) <= band.width else "not as measured before"
