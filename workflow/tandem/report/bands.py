"""Bands: how near a number must come to what is expected, and the verdict on one.

bands.yaml holds a list of entries; docs/papers.md explains their keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.config.tables import Band

CRITERIA = ("table", "row", "first_stage", "recipe", "dataset", "split", "measure")  # keys that select an entry


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


def criteria(band: Band) -> dict[str, str]:
    """The keys by which an entry is selected, as far as it has them."""
    return {key: value for key in CRITERIA if (value := getattr(band, key)) is not None}


def select_band(bands: Sequence[Band], place: Place, stands_in: bool, usual: bool = True) -> Band | None:
    """The band of a number: of the entries that fit the one with the most criteria, the later of equals.

    Args:
        bands: all entries.
        place: what the number is of.
        stands_in: whether it is of another dataset than the paper's: only entries that name the dataset hold there.
        usual: whether it is the recipe's usual number; of some queries only, with other labels or with changes of
            the configuration an expected value holds only if it is that of the table.
    """
    fitting = [
        band
        for band in bands
        if all(_fits(place, key, value) for key, value in criteria(band).items())
        and (band.dataset is not None or not stands_in)
        and (usual or band.value is None or band.table is not None)
    ]
    return max(reversed(fitting), key=lambda band: len(criteria(band)), default=None)


def _fits(place: Place, key: str, value: str) -> bool:
    """Whether a criterion fits; a dataset also by the collection that it is."""
    return getattr(place, key) == value or (key == "dataset" and place.collection == value)


def verdict(value: float | None, printed: float | None, band: Band | None, wrong: str) -> str:
    """`match`, `near`, `off`, `printed number is wrong (why)`, or nothing where there is nothing to compare with.

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
    distance = round(abs(value - expected), 6)  # 0.3 away is within 0.3, whatever the last bits say
    return "match" if distance <= band.tolerance else "near" if distance <= band.near else "off"
