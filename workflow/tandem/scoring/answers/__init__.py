"""Relevance by answer matching: a passage is relevant that contains an answer of the question."""
