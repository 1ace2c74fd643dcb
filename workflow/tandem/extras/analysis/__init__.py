"""Analyses of models and their errors."""
