"""Put texts into one Unicode form: `ü` may be one character, or `u` with a mark, which look alike and do not match.

Nearly all texts are composed (NFC): keyboards type so, and so do Wikipedia and most files. Decomposed ones come from
macOS' file names, from PDFs and from some converters.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from tandem.config.datasets import Normalize
from tandem.data.sources import Answers, Query

_TextColumn = tuple[str, ...]
_FORM: Final = "NFC"
PASSAGES_SIDE = "passages"
_QUERIES_SIDE = "queries"
_ANSWERS_SIDE = "answers"


def is_composed(text: str) -> bool:
    """Return whether a text is in Unicode's form NFC."""
    return text.isascii() or unicodedata.is_normalized(_FORM, text)


def compose_text(text: str, normalize: Normalize) -> str:
    """Return a text as a dataset with this setting has it: in Unicode's form NFC, or unchanged."""
    return unicodedata.normalize(_FORM, text) if normalize == "nfc" else text


class Composer:
    """Put a collection's texts into one form, and count those that were in another.

    Attributes:
        others: how many passages, queries and questions' answers hold a text that is not in the form NFC.
    """

    def __init__(self, normalize: Normalize) -> None:
        self.normalize = normalize
        self.others = dict.fromkeys((PASSAGES_SIDE, _QUERIES_SIDE, _ANSWERS_SIDE), 0)

    def passages(self, titles: _TextColumn, texts: _TextColumn) -> tuple[_TextColumn, _TextColumn]:
        """Return titles and texts of some passages; the same objects if all are in the form already."""
        others = 0
        for title, text in zip(titles, texts, strict=True):
            if not (is_composed(title) and is_composed(text)):
                others += 1
        if not others:
            return titles, texts
        self.others[PASSAGES_SIDE] += others
        return tuple(map(self._text, titles)), tuple(map(self._text, texts))

    def queries(self, rows: Iterable[Query]) -> Iterator[Query]:
        """Yield queries, their texts in the form."""
        for query, text, split in rows:
            self.others[_QUERIES_SIDE] += not is_composed(text)
            yield query, self._text(text), split

    def answers(self, rows: Iterable[Answers]) -> Iterator[Answers]:
        """Yield questions' answers, in the form."""
        for query, texts in rows:
            self.others[_ANSWERS_SIDE] += not all(map(is_composed, texts))
            yield query, [self._text(text) for text in texts]

    def note(self) -> str:
        """Return a line on how many texts were in another form, and what was done with them; empty if none were."""
        counts = ", ".join(f"{count:,} {what}" for what, count in self.others.items() if count)
        if not counts:
            return ""
        if self.normalize == "nfc":
            return f"{counts} not in Unicode's form NFC were put into it"
        return f"{counts} not in Unicode's form NFC: what looks equal may not match; set normalize: nfc"

    def _text(self, text: str) -> str:
        return compose_text(text, self.normalize)
