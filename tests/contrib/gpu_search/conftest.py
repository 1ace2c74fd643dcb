"""Vectors that are stored as the stage `embeddings` stores them."""

from brute_search import store  # noqa: F401
