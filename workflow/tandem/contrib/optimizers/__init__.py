"""Optimisers of trainings in addition to Adam."""
