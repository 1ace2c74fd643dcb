"""Recall, latency and size of indexes, compared with exact search."""
