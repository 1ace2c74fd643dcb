"""Pipelines: the one of several systems that is best on dev, and how much of its first stage it re-ranks."""
