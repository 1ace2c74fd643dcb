"""Measures per query, and tests of whether two systems differ."""
