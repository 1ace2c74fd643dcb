"""Encoding, exact search over embeddings, scores of pairs, re-ranking."""
