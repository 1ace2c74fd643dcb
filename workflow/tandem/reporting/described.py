"""The statistics of a dataset as the report shows them: the corpus as a list, the splits side by side."""

from dataclasses import dataclass
from typing import Any

from tandem.reporting.printed import number_text
from tandem.stages.flags import flatten


@dataclass(frozen=True)
class Described:
    """A dataset's statistics.

    Attributes:
        corpus: name and value of each statistic that is of no split.
        splits: names of the splits.
        of_splits: name of each statistic of splits, and its value in each of them.
    """

    corpus: list[tuple[str, str]]
    splits: list[str]
    of_splits: list[tuple[str, list[str]]]


def described(statistics: dict[str, Any]) -> Described:
    """What statistics.json holds, in words."""
    corpus = flatten({name: told for name, told in statistics.items() if name != "splits"})
    splits = {name: flatten(told) for name, told in statistics.get("splits", {}).items()}
    names = dict.fromkeys(name for told in splits.values() for name in told)
    rows = [(_words(name), [_value(told.get(name)) for told in splits.values()]) for name in names]
    return Described([(_words(name), _value(value)) for name, value in corpus.items()], list(splits), rows)


def _words(path: str) -> str:
    """`passages, words, mean` for `passages.words.mean`."""
    return path.replace(".", ", ").replace("_", " ")


def _value(value: Any) -> str:
    """A number as people write it; – for nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        told = "; ".join(map(str, value)) if isinstance(value, list) else str(value if value is not None else "")
        return told or "–"
    return number_text(value)
