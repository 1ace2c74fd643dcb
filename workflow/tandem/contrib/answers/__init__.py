"""Relevance by answers: a passage that holds an answer of its question counts."""
