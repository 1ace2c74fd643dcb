"""Lexical search without Java, and classical scores in place of BM25."""
