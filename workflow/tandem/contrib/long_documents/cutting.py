"""Texts cut into windows.

Windows are overlapping pieces of a fixed length, so that a model with a short input reads all of a text. Dai & Callan
(2019) slide a window of 150 words in steps of 75 over every document.
"""

import re

_MARK = "#"  # between a document's id and the number of a window
_WORD = re.compile(r"\S+")


def count_windows(units: int, length: int, stride: int) -> int:
    """Count the windows of a text of so many units; an empty one has one.

    Window n holds the units from n · stride to n · stride + length; the last one is the first that reaches the end.
    With stride ≤ length no unit is left out.
    """
    return 1 + max(0, -(-(units - length) // stride))


def split_units(text: str, unit: str) -> list[tuple[int, int]] | range:
    """Return the units of a text: where each word begins and ends (white space separates words), or its characters."""
    if unit == "characters":
        return range(len(text))
    return [word.span() for word in _WORD.finditer(text)]


def cut_windows(
    text: str, length: int, stride: int, unit: str, most: int | None = None
) -> list[str]:
    """Return the windows of a text, in order, as they stand in it.

    Each has `length` units (`words` or `characters`), the last fewer.

    Each begins `stride` units, at most `length`, behind the one before; what is left after `most` windows is left out.
    """
    units = split_units(text, unit)
    count = count_windows(len(units), length, stride)
    firsts = [number * stride for number in range(count)][:most]
    if isinstance(units, range):
        return [text[first : first + length] for first in firsts]
    if not units:
        return [""]

    windows = []
    for first in firsts:
        last = min(first + length, len(units)) - 1
        begin, _ = units[first]
        _, end = units[last]
        windows.append(text[begin:end])
    return windows


def name_window(document: str, number: int) -> str:
    """Return `<document>#<number>`, numbered from 0; the number holds no `#`, so that no two windows share an id."""
    return f"{document}{_MARK}{number}"


def split_window_id(window: str) -> tuple[str, int]:
    """Return a window's document and number."""
    document, _, number = window.rpartition(_MARK)
    return document, int(number)
