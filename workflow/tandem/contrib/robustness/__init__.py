"""Queries with typos, in capitals or with their words in another order, and runs on these queries."""
