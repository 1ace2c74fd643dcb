"""How a text becomes Lucene's terms: the same choice for passages and queries, from the parameters of an index."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tandem.data.segment import segmenter
from tandem.errors import UserError
from tandem.retrieval.lexical import ANALYZERS, SPLIT_BEFORE, STEMMERS, WITHOUT_JAVA
from tandem.retrieval.lexical.java import JavaClass


def check_analyzer(params: dict[str, Any]) -> None:
    """Refuse an analyzer that does not exist, before Java is started.

    `analyzer` is `default` (what Anserini does with the language: Porter's stemmer for English, bigrams of characters
    for Chinese and Korean, Lucene's analyzer for others), an English stemmer, `whitespace` (texts are tokens), or
    `jieba` (Chinese words).
    """
    analyzer, language = params["analyzer"], params["language"]
    if analyzer not in ANALYZERS:
        raise UserError(f"analyzer: {analyzer!r} is unknown; allowed are {', '.join(ANALYZERS)}")
    if analyzer in STEMMERS and language != "en":
        raise UserError(
            f"analyzer: {analyzer} is English and language is {language}; default, whitespace or jieba is allowed"
        )


def check_language(java: JavaClass, language: str) -> None:
    """Refuse a language that Anserini would silently take for English."""
    known = sorted({"en", *java("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()})
    if language not in known:
        raise UserError(f"language: {language!r} is unknown; allowed are {', '.join(known)}")


def splitter(params: dict[str, Any]) -> Callable[[str], str] | None:
    """What turns a text into terms by spaces before Lucene sees it; None where Lucene's analyzer does it."""
    if params["analyzer"] != "jieba":
        return None
    words = segmenter()
    return lambda text: " ".join(words(text))


def lucene_stemmer(params: dict[str, Any]) -> str:
    """The stemmer of the English analyzer."""
    return "porter" if params["analyzer"] == "default" else str(params["analyzer"])


def lucene_analyzer(java: JavaClass, params: dict[str, Any]) -> Any:
    """The Lucene `Analyzer` for queries of an index with these parameters."""
    if params["analyzer"] in SPLIT_BEFORE:
        return java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params["language"] == "en":
        return java("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(lucene_stemmer(params), False, None)
    return java("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params["language"])


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


def check_without_java(params: dict[str, Any]) -> None:
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


def term_splitter(params: dict[str, Any]) -> Terms:
    """A function from a text to its terms, in their order."""
    if params["analyzer"] == "whitespace":
        return str.split
    if params["analyzer"] == "jieba":
        return segmenter()
    stop = STOP_WORDS if params["language"] == "en" else frozenset()
    stem = porter_stemmer() if params["analyzer"] != "none" else str

    @lru_cache(REMEMBERED)
    def term(word: str) -> str:
        """The term of a lower-case word; empty for a stop word."""
        whole = word[:-2] if word.endswith(("'s", "’s")) else word
        return "" if whole in stop else stem(whole)

    return lambda text: [made for word in WORD.findall(text.lower()) if (made := term(word))]


def porter_stemmer() -> Callable[[str], str]:
    """Porter's stemmer; words of one or two letters stay as they are, as in his program (Snowball's empties `s`)."""
    import Stemmer

    stem: Callable[[str], str] = Stemmer.Stemmer("porter", 0).stemWord
    return lambda word: stem(word) if len(word) > 2 else word
