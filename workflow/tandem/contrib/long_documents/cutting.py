"""Cut texts into windows.

Windows are overlapping pieces of a fixed length, so that a model with a short input can read a whole text. Dai & Callan
(2019) slide a window of 150 words in steps of 75 over every document.
"""

import re

_MARK = "#"  # between a document's id and the number of a window
_WORD = re.compile(r"\S+")


def count_windows(units: int, length: int, stride: int) -> int:
    """Return the number of windows of a text of `units` units; an empty text has one window.

    Window n contains the units from n · stride to n · stride + length; the first window that reaches the end is the
    last. With stride ≤ length, no unit is left out.
    """
    return 1 + max(0, -(-(units - length) // stride))


def split_units(text: str, unit: str) -> list[tuple[int, int]] | range:
    """Return the units of a text: the bounds of each word (white space separates words), or the characters' indices."""
    if unit == "characters":
        return range(len(text))
    return [word.span() for word in _WORD.finditer(text)]


def cut_windows(
    text: str, length: int, stride: int, unit: str, most: int | None = None
) -> list[str]:
    """Return the windows of a text, in order, as substrings of it.

    Each has `length` units (`words` or `characters`); the last one may have fewer.

    Each begins `stride` units (at most `length`) after the one before. Text after the first `most` windows is left out.
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
    """Return `<document>#<number>`, numbered from 0; a number contains no `#`, so that no two windows share an id."""
    return f"{document}{_MARK}{number}"


def split_window_id(window: str) -> tuple[str, int]:
    """Return a window's document and number."""
    document, _, number = window.rpartition(_MARK)
    return document, int(number)
