"""Re-ranking by a model that compares the passages at the top of a list in pairs, and aggregates of the comparisons."""
