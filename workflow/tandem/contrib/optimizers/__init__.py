"""Optimisers of trainings beside Adam's."""
