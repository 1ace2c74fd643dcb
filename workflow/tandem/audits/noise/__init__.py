"""Leakage and noise: duplicates, missing and repeated labels, overlap of splits, unjudged results."""
