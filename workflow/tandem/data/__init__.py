"""Corpora, queries, qrels and runs: how they are read, checked, described and stored."""
