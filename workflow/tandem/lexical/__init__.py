"""Lexical retrieval with Lucene, through Pyserini's build of Anserini."""

STEMMERS = ("porter", "krovetz", "none")  # of Anserini's English analyzer, all with its stop words
SPLIT_BEFORE = ("whitespace", "jieba")  # Lucene is handed terms
ANALYZERS = ("default", *STEMMERS, *SPLIT_BEFORE)
# What Anserini has an analyzer for; any other language it would silently take for English.
LANGUAGES = (
    *("ar", "bn", "da", "de", "en", "es", "fa", "fi", "fr", "hi", "hu", "id", "it"),
    *("ja", "ko", "nl", "no", "pl", "pt", "ru", "sv", "te", "th", "tr", "uk", "zh"),
)
