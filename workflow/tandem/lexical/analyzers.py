"""How a text becomes Lucene's terms: the same choice for passages and queries, from the parameters of an index."""

from typing import Any

from tandem.errors import UserError
from tandem.lexical.jvm import JavaClass

STEMMERS = ("porter", "krovetz", "none")  # of Anserini's English analyzer, all with its stop words
ANALYZERS = ("default", *STEMMERS, "whitespace")


def check(params: dict[str, Any]) -> None:
    """Refuse an analyzer that does not exist, before Java is started.

    `analyzer` is `default` (what Anserini does with the language: Porter's stemmer for English, bigrams of characters
    for Chinese and Korean, Lucene's analyzer for others), an English stemmer, or `whitespace` (texts are tokens).
    """
    analyzer, language = params["analyzer"], params["language"]
    if analyzer not in ANALYZERS:
        raise UserError(f"analyzer: {analyzer!r} is unknown; allowed are {', '.join(ANALYZERS)}")
    if analyzer in STEMMERS and language != "en":
        raise UserError(f"analyzer: {analyzer} is English and language is {language}; default or whitespace is allowed")


def check_language(java: JavaClass, language: str) -> None:
    """Refuse a language that Anserini would silently take for English."""
    known = sorted({"en", *java("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()})
    if language not in known:
        raise UserError(f"language: {language!r} is unknown; allowed are {', '.join(known)}")


def stemmer(params: dict[str, Any]) -> str:
    """The stemmer of the English analyzer."""
    return "porter" if params["analyzer"] == "default" else str(params["analyzer"])


def build(java: JavaClass, params: dict[str, Any]) -> Any:
    """The Lucene `Analyzer` for queries of an index with these parameters."""
    if params["analyzer"] == "whitespace":
        return java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params["language"] == "en":
        return java("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(stemmer(params), False, None)
    return java("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params["language"])
