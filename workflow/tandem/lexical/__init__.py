"""Lexical retrieval with Lucene, through Pyserini's build of Anserini."""

STEMMERS = ("porter", "krovetz", "none")  # of Anserini's English analyzer, all with its stop words
SPLIT_BEFORE = ("whitespace", "jieba")  # Lucene is handed terms
ANALYZERS = ("default", *STEMMERS, *SPLIT_BEFORE)
