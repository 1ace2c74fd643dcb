"""How a text becomes terms without Java, for the engine bm25s: near to what Lucene's English analyzer makes of it.

Words are runs of letters, digits and `_`, joined by an apostrophe, a full stop or a colon between letters and by a
full stop or a comma between digits (of Unicode's rules for word boundaries what text with spaces needs); then lower
case, without `'s`, without Lucene's English stop words, stemmed by Porter's algorithm (1980, Snowball's `porter`).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tandem.data.text import segmenter
from tandem.errors import UserError
from tandem.lexical import WITHOUT_JAVA

Terms = Callable[[str], list[str]]

WORD = re.compile(r"\w+(?:(?:(?<=[^\W\d])[.'’:·](?=[^\W\d])|(?<=\d)[.,;'’](?=\d))\w+)*")
# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
STOP_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not"),
        *("of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was"),
        *("will", "with"),
    )
)
REMEMBERED = 1 << 20  # words whose term is kept: text repeats itself


def check(params: dict[str, Any]) -> None:
    """Refuse what needs Java: `analyzer` is `default` and `porter` (English), `none`, `whitespace` or `jieba`.

    `none` leaves words unstemmed, in English without stop words.
    """
    analyzer, language = params["analyzer"], params["language"]
    if analyzer not in WITHOUT_JAVA:
        raise UserError(f"analyzer: {analyzer!r} is not one of bm25s; allowed are {', '.join(WITHOUT_JAVA)}")
    if analyzer in ("default", "porter") and language != "en":
        raise UserError(
            f"analyzer: of bm25s {analyzer} is English and language is {language}; none, whitespace or jieba is allowed"
        )


def terms(params: dict[str, Any]) -> Terms:
    """A function from a text to its terms, in their order."""
    if params["analyzer"] == "whitespace":
        return str.split
    if params["analyzer"] == "jieba":
        return segmenter()
    stop = STOP_WORDS if params["language"] == "en" else frozenset()
    stem = stemmer() if params["analyzer"] != "none" else str

    @lru_cache(REMEMBERED)
    def term(word: str) -> str:
        """The term of a lower-case word; empty for a stop word."""
        whole = word[:-2] if word.endswith(("'s", "’s")) else word
        return "" if whole in stop else stem(whole)

    return lambda text: [made for word in WORD.findall(text.lower()) if (made := term(word))]


def stemmer() -> Callable[[str], str]:
    """Porter's stemmer; words of one or two letters stay as they are, as in his program (Snowball's empties `s`)."""
    import Stemmer

    stem: Callable[[str], str] = Stemmer.Stemmer("porter", 0).stemWord
    return lambda word: stem(word) if len(word) > 2 else word
