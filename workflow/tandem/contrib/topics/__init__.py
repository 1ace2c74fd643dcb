"""Batches of queries about one topic (TAS)."""
