"""Queries with typos, in capitals or in another order of words, and runs on them."""
