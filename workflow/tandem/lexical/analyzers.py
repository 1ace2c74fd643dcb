"""How a text becomes Lucene's terms: the same choice for passages and queries, from the parameters of an index."""

from collections.abc import Callable
from typing import Any

from tandem.data.text import segmenter
from tandem.errors import UserError
from tandem.lexical import ANALYZERS, SPLIT_BEFORE, STEMMERS
from tandem.lexical.jvm import JavaClass


def check(params: dict[str, Any]) -> None:
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


def stemmer(params: dict[str, Any]) -> str:
    """The stemmer of the English analyzer."""
    return "porter" if params["analyzer"] == "default" else str(params["analyzer"])


def build(java: JavaClass, params: dict[str, Any]) -> Any:
    """The Lucene `Analyzer` for queries of an index with these parameters."""
    if params["analyzer"] in SPLIT_BEFORE:
        return java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params["language"] == "en":
        return java("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(stemmer(params), False, None)
    return java("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params["language"])
