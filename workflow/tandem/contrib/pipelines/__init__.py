"""Pipelines: the best of several systems on dev, and how much of its first stage it re-ranks."""
