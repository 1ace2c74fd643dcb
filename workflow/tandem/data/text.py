"""Texts cut into windows, and texts written without spaces cut into words.

Windows are overlapping pieces of a fixed length, so that a model with a short input reads all of a text. Dai & Callan
(2019) slide a window of 150 words in steps of 75 over every document.
"""

import logging
import re
import tempfile
from collections.abc import Callable
from functools import cache

WORD = re.compile(r"\S+")
UNITS = ("words", "characters")
MARK = "#"  # between a document's id and the number of a window


def count_windows(units: int, length: int, stride: int) -> int:
    """How many windows a text of so many units has; one if it is empty.

    Window n holds the units from n · stride to n · stride + length; the last one is the first that reaches the end.
    With stride ≤ length no unit is left out.
    """
    return 1 + max(0, -(-(units - length) // stride))


def units_of(text: str, unit: str) -> list[tuple[int, int]] | range:
    """The units of a text: where each word begins and ends (white space separates words), or its characters."""
    return range(len(text)) if unit == "characters" else [word.span() for word in WORD.finditer(text)]


def cut(text: str, length: int, stride: int, unit: str, most: int | None = None) -> list[str]:
    """The windows of a text, in order, as they stand in it.

    Args:
        text: any text.
        length: units of a window; the last may have fewer.
        stride: units from one window's beginning to the next one's, at most `length`.
        unit: `words` or `characters`.
        most: no more than so many windows, the rest is left out; None for all.
    """
    units = units_of(text, unit)
    firsts = [number * stride for number in range(count_windows(len(units), length, stride))][:most]
    if isinstance(units, range):
        return [text[first : first + length] for first in firsts]
    if not units:
        return [""]
    return [text[units[first][0] : units[min(first + length, len(units)) - 1][1]] for first in firsts]


def window_id(document: str, number: int) -> str:
    """`<document>#<number>`, numbered from 0.

    The number holds no `#`, so the document is what stands before the last one: no two windows share an id, whatever
    the documents are called.
    """
    return f"{document}{MARK}{number}"


def document_of(window: str) -> tuple[str, int]:
    """A window's document and number."""
    document, _, number = window.rpartition(MARK)
    return document, int(number)


@cache
def segmenter() -> Callable[[str], list[str]]:
    """A function from a text to its words, by jieba's dictionary (accurate mode).

    Words are lower case; those without a letter or digit are left out. jieba keeps a compiled dictionary in the
    temporary folder and trusts whatever is there; here it gets a folder of its own, which costs a second.
    """
    import jieba

    jieba.setLogLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = jieba.Tokenizer()
        tokenizer.tmp_dir = folder
        tokenizer.initialize()

    def words(text: str) -> list[str]:
        """The words of one text."""
        return [word.lower() for word in tokenizer.cut(text) if any(map(str.isalnum, word))]

    return words
