"""Lexical search without Java, and classical scores in BM25's place."""
