"""Lexical retrieval: BM25 by Lucene, through Pyserini's build of Anserini, or by bm25s where there is no Java."""

STEMMERS = ("porter", "krovetz", "none")  # of Anserini's English analyzer, all with its stop words
SPLIT_BEFORE = ("whitespace", "jieba")  # Lucene is handed terms
ANALYZERS = ("default", *STEMMERS, *SPLIT_BEFORE)
# What Anserini has an analyzer for; any other language it would silently take for English.
LANGUAGES = (
    *("ar", "bn", "da", "de", "en", "es", "fa", "fi", "fr", "hi", "hu", "id", "it"),
    *("ja", "ko", "nl", "no", "pl", "pt", "ru", "sv", "te", "th", "tr", "uk", "zh"),
)
ENGINES = ("lucene", "bm25s")  # also the kind of their index, and its role in a search
WITHOUT_JAVA = ("default", "porter", "none", *SPLIT_BEFORE)  # analyzers of the engine bm25s
FORMULAS = {"lucene": None, "bm25+": 1.0, "bm25l": 0.5}  # of bm25s, with the δ of its paper; Lucene has the first
