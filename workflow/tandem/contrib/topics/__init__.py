"""Batches whose queries are about one topic (TAS)."""
