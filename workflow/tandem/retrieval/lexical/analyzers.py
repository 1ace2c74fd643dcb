"""How a text becomes terms: the same for passages and queries, from the parameters of an index.

Lucene has analyzers of its own. The engine bm25s does without Java what is near to Lucene's English analyzer: words are
runs of letters, digits and `_`, joined by an apostrophe, a full stop or a colon between letters and by a full stop or a
comma between digits (of Unicode's rules for word boundaries what text with spaces needs); then lower case, without
`'s`, without Lucene's English stop words, stemmed by Porter's algorithm (1980, Snowball's `porter`).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tandem.cluster.progress import say
from tandem.data.language import misfits
from tandem.data.text import segmenter
from tandem.errors import UserError
from tandem.retrieval.lexical.java import JavaClass
from tandem.stages.lexical import SPLIT_BEFORE, STEMMERS, Bm25sParams, LuceneParams
from tandem.store.job import Job

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
CACHED = 1 << 20  # words whose term is cached: text repeats itself


def check_analyzer(params: LuceneParams) -> None:
    """Refuse an English stemmer for another language, before Java is started.

    `analyzer` is `default` (what Anserini does with the language: Porter's stemmer for English, bigrams of characters
    for Chinese and Korean, Lucene's analyzer for others), an English stemmer, `whitespace` (texts are tokens), or
    `jieba` (Chinese words).
    """
    if params.analyzer in STEMMERS and params.language != "en":
        raise UserError(
            f"analyzer: {params.analyzer} is English and language is {params.language}; "
            "default, whitespace or jieba is allowed"
        )


def language_warnings(job: Job[LuceneParams] | Job[Bm25sParams]) -> list[str]:
    """Print and return a line for passages, and one for queries, that are not in the language of their analysis."""
    params, dataset = job.params, job.inputs["dataset"]
    if params.analyzer == "whitespace":
        return []
    language = "zh" if params.analyzer == "jieba" else params.language
    lines = []
    for side, facts in dataset.manifest.facts.get("texts", {}).items():
        if others := misfits(language, facts["languages"]):
            hint = "say the dataset's language, and perhaps its analyzer"
            lines.append(f"the {side} are analysed as {language}, but look like {others}: {hint}")
            say(f"{job.kind} {job.key} · warning: {lines[-1]}")
    return lines


def check_language(java: JavaClass, language: str) -> None:
    """Refuse a language that Anserini would silently take for English."""
    known = sorted({"en", *java("io.anserini.analysis.AnalyzerMap").analyzerMap.keySet().toArray()})
    if language not in known:
        raise UserError(f"language: {language!r} is unknown; allowed are {', '.join(known)}")


def splitter(params: LuceneParams) -> Callable[[str], str] | None:
    """A function that puts spaces between terms before Lucene sees them; None where Lucene's analyzer finds terms."""
    if params.analyzer != "jieba":
        return None
    words = segmenter()
    return lambda text: " ".join(words(text))


def lucene_stemmer(params: LuceneParams) -> str:
    """The stemmer of Anserini's English analyzer."""
    return "porter" if params.analyzer == "default" else params.analyzer


def lucene_analyzer(java: JavaClass, params: LuceneParams) -> Any:
    """The Lucene `Analyzer` for queries of an index with these parameters."""
    if params.analyzer in SPLIT_BEFORE:
        return java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if params.language == "en":
        return java("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(lucene_stemmer(params), False, None)
    return java("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(params.language)


def check_without_java(params: Bm25sParams) -> None:
    """Refuse an English stemmer for another language.

    `analyzer` is `default` or `porter` (English), `none` (words unstemmed, in English without stop words), `whitespace`
    or `jieba`.
    """
    if params.analyzer in ("default", "porter") and params.language != "en":
        raise UserError(
            f"analyzer: of bm25s {params.analyzer} is English and language is {params.language}; "
            "none, whitespace or jieba is allowed"
        )


def term_splitter(params: Bm25sParams) -> Terms:
    """A function from a text to its terms, in their order, without Java."""
    if params.analyzer == "whitespace":
        return str.split
    if params.analyzer == "jieba":
        return segmenter()
    stop = STOP_WORDS if params.language == "en" else frozenset()
    stem = porter_stemmer() if params.analyzer != "none" else str

    @lru_cache(CACHED)
    def term(word: str) -> str:
        """The term of a lower-case word; empty for a stop word."""
        whole = word[:-2] if word.endswith(("'s", "’s")) else word
        return "" if whole in stop else stem(whole)

    return lambda text: [stemmed for word in WORD.findall(text.lower()) if (stemmed := term(word))]


def porter_stemmer() -> Callable[[str], str]:
    """Porter's stemmer; words of one or two letters stay as they are, as in his program (Snowball's empties `s`)."""
    import Stemmer

    stem: Callable[[str], str] = Stemmer.Stemmer("porter", 0).stemWord
    return lambda word: stem(word) if len(word) > 2 else word
