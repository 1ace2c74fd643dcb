"""Relevance by answers: a passage that contains an answer to the question is relevant."""
