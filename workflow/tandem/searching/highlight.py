"""Query terms in a passage: which words they are, the part of a text that holds most of them, and lines of it."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from unicodedata import east_asian_width

from tandem.retrieval.lexical.analyzers import STOP_WORDS

# Scripts without spaces: a pair of neighbouring characters is a term, as in Lucene's analyzers of Chinese and Japanese.
SOLID = "぀-ヿ㐀-鿿豈-﫿"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
PIECE = re.compile(rf"[{SOLID}]|[^\W_{SOLID}]+")


def pieces(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, case-folded) of each word, and of each character of a script without spaces."""
    for match in PIECE.finditer(text):
        yield match.start(), match.end(), match[0].casefold()


def terms(query: str) -> set[str]:
    """A query's words, without English stop words (they would mark every line); pairs of characters without spaces."""
    found = list(pieces(query))
    words = {word for _, _, word in found if not _solid(word)}
    pairs = {a[2] + b[2] for a, b in pairwise(found) if a[1] == b[0] and _solid(a[2]) and _solid(b[2])}
    return (words - STOP_WORDS or words) | pairs


def spans(text: str, wanted: set[str]) -> list[tuple[int, int, str]]:
    """(start, end, term) of each term in a text, in order; spans of pairs of characters may overlap."""
    found = list(pieces(text))
    alone = [one for one in found if one[2] in wanted]
    pairs = [(a[0], b[1], a[2] + b[2]) for a, b in pairwise(found) if a[1] == b[0]]
    return sorted(alone + [one for one in pairs if one[2] in wanted])


def excerpt(text: str, wanted: set[str], cells: int) -> str:
    """The part of a text of about so many terminal cells that holds most of the terms, the first of several.

    What is left out is marked by `…`. Parts begin at the text's start or shortly before a term. Control characters,
    which a terminal would obey, are not shown.
    """
    text = CONTROL.sub("", " ".join(text.split()))
    if width(text) <= cells:
        return text
    found = spans(text, wanted)
    starts = [0, *(_word_start(text, max(0, start - cells // 4)) for start, _, _ in found)]
    best, most = 0, -1
    for start in dict.fromkeys(starts):
        stop = start + len(_cut(text[start:], cells - 2))
        held = len({term for left, right, term in found if start <= left and right <= stop})
        if held > most:
            best, most = start, held
    shown = _cut(text[best:], cells - 2)
    return f"{'…' if best else ''}{shown}{'…' if best + len(shown) < len(text) else ''}"


def lines(text: str, cells: int) -> Iterator[str]:
    """A text broken into lines of at most so many cells, between words where there are any."""
    while text:
        line = _cut(text, cells) or text[0]
        yield line.rstrip()
        text = text[len(line) :].lstrip()


def marked(text: str, wanted: set[str], mark: Callable[[str], str]) -> str:
    """A text with its terms as `mark` writes them."""
    shown, at = [], 0
    for start, end, _ in spans(text, wanted):
        if end > at:
            shown += [text[at : max(at, start)], mark(text[max(at, start) : end])]
            at = end
    return "".join([*shown, text[at:]])


def width(text: str) -> int:
    """Cells of a terminal that a text takes: two for wide characters."""
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def _solid(word: str) -> bool:
    """Whether a piece is a character of a script without spaces."""
    return re.fullmatch(f"[{SOLID}]", word) is not None


def _cut(text: str, cells: int) -> str:
    """The beginning of a text that fits, up to the end of a word unless a single one is longer."""
    taken = 0
    for at, character in enumerate(text):
        taken += width(character)
        if taken > cells:
            space = text.rfind(" ", 0, at + 1)
            return text[:space] if space > at // 2 else text[:at]
    return text


def _word_start(text: str, at: int) -> int:
    """The start of the word that a position is in."""
    return text.rfind(" ", 0, at) + 1
