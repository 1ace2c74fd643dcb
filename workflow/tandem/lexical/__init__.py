"""Lexical retrieval with Lucene, through Pyserini's build of Anserini."""
